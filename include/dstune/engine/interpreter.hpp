#pragma once
/// Which Python a job of the workload deepspeed runs in, found by file names alone: nothing is
/// started, and nothing of Python is known to the program otherwise. Local.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dstune::engine {

/// A variable of the environment, or nothing.
using Variables = std::function<std::optional<std::string>(const char* name)>;
[[nodiscard]] std::optional<std::string> process_variable(const char* name);

struct Interpreter {
  std::string path;     ///< to be started by this name: a virtual environment is found by it
  std::string problem;  ///< why there is none, with a hint; else empty
};

/// `given`: dstune.workload.python, a virtual environment's folder or an interpreter; relative to
/// `folder`. Where it is empty: $VIRTUAL_ENV, $CONDA_PREFIX, the interpreter of `deepspeed` on the
/// PATH, python3 on the PATH.
[[nodiscard]] Interpreter find_interpreter(const std::string& given, const std::string& folder,
                                           const Variables& variable);

/// What a space file says of the Python to run in.
struct EngineRequest {
  std::string python;  ///< as written; empty: not given
  std::string folder;  ///< of the file
};
/// Looks at a space file without reading it in full. Nothing where its workload is another and it
/// has no `verify`, or the file can not be read: whoever reads it in full says so. `verify`: the
/// command line asks for it.
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
