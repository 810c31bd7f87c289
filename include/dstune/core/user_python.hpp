#pragma once
/// Finds the user's Python by the names of files alone: no Python is started. Local.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/rooted_files.hpp"

namespace dstune {

/// The environment and files in which it is looked for.
struct PythonEnvironment {
  std::map<std::string, std::string, std::less<>> variables;
  std::string root;         ///< stands before every absolute path; empty: this machine's
  std::string interpreter;  ///< the Python of the job, or its environment's folder; empty: none

  [[nodiscard]] RootedFiles files() const { return RootedFiles(root); }
  /// Empty where it is not set.
  [[nodiscard]] std::string_view variable(std::string_view name) const;
};
/// The environment that this process was started with.
[[nodiscard]] PythonEnvironment own_python_environment();

struct UserPython {
  std::string path;     ///< to be started by this name: a venv is found by it; empty: none there
  std::string prefix;   ///< the folder that has its `bin` and `lib`
  std::string program;  ///< "python3.11", where links lead to it; empty: not known
};
/// `path`: an interpreter, or the folder of an environment (venv, conda).
[[nodiscard]] UserPython python_at(const PythonEnvironment& environment, const std::string& path);
/// The first of $VIRTUAL_ENV and $CONDA_PREFIX that has an interpreter; else the first that is set.
[[nodiscard]] std::optional<UserPython> active_python(const PythonEnvironment& environment);
/// The interpreter that the first line of a script names: "#!/venv/bin/python",
/// "#!/usr/bin/env python3", or what pip writes where a path is too long for a first line.
[[nodiscard]] std::optional<UserPython> python_of_script(const PythonEnvironment& environment,
                                                         const std::string& script);
/// A program on the PATH.
[[nodiscard]] std::optional<std::string> find_on_path(const PythonEnvironment& environment,
                                                      const std::string& name);

struct FoundPython {
  std::string path;     ///< of the interpreter
  std::string problem;  ///< why there is none, with a hint; else empty
};
/// The one that a job runs in: `interpreter`; where it is empty the active one, that of `deepspeed`
/// on the PATH, python3 on the PATH.
[[nodiscard]] FoundPython find_python(const PythonEnvironment& environment);

/// The folders in which that Python looks for packages, in its order: $PYTHONPATH, its own, the
/// user's, the system's.
[[nodiscard]] std::vector<std::string> package_folders(const PythonEnvironment& python,
                                                       const UserPython& interpreter);
/// The folders of libraries that NVIDIA's packages have (nvidia/cudnn/lib, which PyTorch brings) in
/// the Python that a job runs in.
[[nodiscard]] std::vector<std::string> nvidia_library_folders(const PythonEnvironment& environment);
/// Folders beyond the dynamic linker's that may have cuBLASLt, cuDNN and NCCL: those of that
/// Python, then of $CUDA_HOME, $CUDA_PATH, $CUDNN_ROOT, $CUDNN_HOME and $NCCL_HOME, then
/// /usr/local/cuda.
[[nodiscard]] std::vector<std::string> gpu_library_folders(const PythonEnvironment& environment);

/// "3.11" of "python3.11" and "3.11.2", or nothing.
[[nodiscard]] std::string python_minor(std::string_view text);

}  // namespace dstune
