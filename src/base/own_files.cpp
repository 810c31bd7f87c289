#include "dstune/base/own_files.hpp"

#include <filesystem>
#include <system_error>

#include <dlfcn.h>
#include <link.h>

namespace dstune {
namespace {

/// The file that this code was loaded from; empty for the executable.
std::string loaded_file() {
  Dl_info info{};
  void* entry = nullptr;
  const bool is_known =
      dladdr1(reinterpret_cast<void*>(&is_own_program), &info, &entry, RTLD_DL_LINKMAP) != 0 &&
      entry != nullptr;
  return is_known ? static_cast<const link_map*>(entry)->l_name : "";
}

}  // namespace

bool is_own_program() {
  return loaded_file().empty();
}

std::optional<std::string> find_own_file(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code cause;
  const fs::path file = is_own_program() ? fs::read_symlink("/proc/self/exe", cause)
                                         : fs::canonical(loaded_file(), cause);
  if (cause) return std::nullopt;
  const fs::path folder = file.parent_path();
  // A package may put the program elsewhere than the folders say that it was configured with.
  for (const char* place : {".", DSTUNE_LIBRARY_FOLDER, "../lib/dstune-mpi", "../lib"}) {
    const fs::path found = (folder / place / name).lexically_normal();
    if (fs::is_regular_file(found, cause)) return found.string();
  }
  return std::nullopt;
}

}  // namespace dstune
