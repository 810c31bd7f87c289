#pragma once
/// Which DeepSpeed the user's Python would import, by the names of files alone: no Python is
/// started. Local.

#include <map>
#include <optional>
#include <string>

#include "dstune/core/deepspeed_version.hpp"

namespace dstune {

/// Where it is looked for.
struct PythonEnvironment {
  std::map<std::string, std::string, std::less<>> variables;
  std::string root;         ///< stands before every absolute path; empty: this machine's
  std::string interpreter;  ///< the Python of the job, or its environment's folder; empty: none
};
/// What this process was started with.
[[nodiscard]] PythonEnvironment own_python_environment();

struct DeepSpeedInstallation {
  Version version;
  std::string folder;  ///< that Python finds it in
  std::string note;    ///< of others behind it; empty where there is none
};

/// That of the interpreter where one is given; else of $VIRTUAL_ENV or $CONDA_PREFIX; else of the
/// interpreter that the first line of `deepspeed` on the path names. Nothing where there is none.
/// Throws Error where the active environment and `deepspeed` on the path differ.
[[nodiscard]] std::optional<DeepSpeedInstallation> find_deepspeed(const PythonEnvironment& python);

}  // namespace dstune
