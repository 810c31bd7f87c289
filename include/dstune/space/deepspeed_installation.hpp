#pragma once
/// Finds the DeepSpeed that the user's Python would import, by the names of files alone: no Python
/// is started. Local.

#include <optional>
#include <string>

#include "dstune/core/deepspeed_version.hpp"
#include "dstune/core/user_python.hpp"

namespace dstune {

struct DeepSpeedInstallation {
  Version version;
  std::string folder;  ///< that Python finds it in
  std::string note;    ///< of others behind it; empty where there is none
};

/// Returns that of the interpreter if one is given; else of $VIRTUAL_ENV or $CONDA_PREFIX; else of
/// the interpreter that the first line of `deepspeed` on the path names. Nothing where there is
/// none. Throws Error where the active environment and `deepspeed` on the path differ.
[[nodiscard]] std::optional<DeepSpeedInstallation> find_deepspeed(const PythonEnvironment& python);

/// The release of PyTorch that the same Python would import, as 10000 · major + 100 · minor; 0:
/// none is found.
[[nodiscard]] int find_torch(const PythonEnvironment& python);
/// Returns the number of a release of PyTorch that `TargetSpec::torch` has.
[[nodiscard]] int torch_number(const Version& version);
/// Returns the words for such a number: "PyTorch 2.8".
[[nodiscard]] std::string torch_text(int torch);

}  // namespace dstune
