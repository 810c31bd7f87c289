#include "mpi_library.hpp"

#include <mutex>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/own_files.hpp"

namespace dstune {
namespace {

constexpr const char* file_name = "libdstune-mpi-comm.so";

void* load(const std::string& path) {
  // Some plug-ins of Open MPI take libmpi's symbols from the program. Within Python they would be
  // in front of those of its modules, which bring libraries of the same names.
  const int visibility = is_own_program() ? RTLD_GLOBAL : RTLD_LOCAL;
  void* const library = dlopen(path.c_str(), RTLD_NOW | visibility);
  if (library != nullptr) return library;
  const char* const said = dlerror();
  throw MpiError(fmt::format(
      "MPI can not be loaded ({}): install the MPI that the program was built with, or load its "
      "module, so that its folder is in LD_LIBRARY_PATH",
      said == nullptr ? path : said));
}

}  // namespace

const MpiLibrary& open_mpi() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const MpiLibrary* const opened = opened_mpi) return *opened;
  const std::optional<std::string> path = find_own_file(file_name);
  if (!path)
    throw MpiError(fmt::format("{} is not beside the program: build or install it with the program",
                               file_name));
  void* const symbol = dlsym(load(*path), mpi_library_symbol);
  if (symbol == nullptr)
    throw MpiError(*path + " is not of this program: it has no function of it");
  opened_mpi = reinterpret_cast<GetMpiLibrary*>(symbol)();
  return *opened_mpi;
}

}  // namespace dstune
