#pragma once
/// How a job of the workload deepspeed becomes Python: whether it is asked for, the command line,
/// and the modules that the program brings. Local.

#include <optional>
#include <string>
#include <vector>

namespace dstune::engine {

/// A space file's request for the Python to run in.
struct EngineRequest {
  std::string python;  ///< as written; empty: not given
  std::string folder;  ///< of the file
};
/// Looks at a space file without reading it in full. Nothing if its workload is another, it has no
/// `verify` and its target does not `measure`, or the file can not be read. The reader of the whole
/// file says so. `verify`: the command line asks for it.
[[nodiscard]] std::optional<EngineRequest> engine_request(const std::string& space_path,
                                                          bool verify = false);

/// The command line by which `python` becomes the program: the bootstrap loads `library` and goes
/// on with `arguments`, the program's own name first.
[[nodiscard]] std::vector<std::string> python_command(const std::string& python,
                                                      const std::string& library,
                                                      const std::vector<std::string>& arguments);

/// The source of a module of the package dstune_engine ("dstune_engine", "dstune_engine.main"), or
/// null.
[[nodiscard]] const char* module_source(const std::string& module);

}  // namespace dstune::engine
