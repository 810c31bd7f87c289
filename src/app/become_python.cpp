#include "become_python.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/own_files.hpp"
#include "dstune/core/user_python.hpp"
#include "dstune/instrument/engine/interpreter.hpp"
#include "options.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;

constexpr const char* library_name = "libdstune-mpi.so";

/// Nothing where the command line is wrong, which is said later, or asks for no experiments.
std::optional<engine::EngineRequest> request_of(int argc, char** argv) {
  try {
    const CommandLine line = parse_command_line(argc, argv);
    if (line.help || line.version || line.job.dry_run) return std::nullopt;
    return engine::engine_request(line.job.space_path, line.job.overrides.verify);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string become_python_where_asked(int argc, char** argv) {
  const auto request = request_of(argc, argv);
  if (!request) return "";
  PythonEnvironment environment = own_python_environment();
  if (!request->python.empty())
    environment.interpreter = (fs::path(request->folder) / request->python).string();
  const FoundPython python = find_python(environment);
  if (!python.problem.empty()) return python.problem;
  const auto library = find_own_file(library_name);
  if (!library)
    return fmt::format("{} is not beside the program: build or install it with the program",
                       library_name);
  std::vector<std::string> words =
      engine::python_command(python.path, *library, std::vector<std::string>(argv, argv + argc));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(python.path.c_str(), pointers.data());
  return fmt::format("{} can not be started: {}", python.path, std::strerror(errno));
}

}  // namespace dstune
