#pragma once
/// The environment variables that the program reads, and the settings of batch scripts, for the
/// manual pages. Local.

#include <string>
#include <vector>

namespace dstune {

struct VariableRow {
  std::vector<std::string> names;
  std::string help;  ///< sentences
};

const std::vector<VariableRow>& environment_table();

/// A setting of the scripts that `dstune-mpi batch` prints.
struct ScriptVariable {
  std::string name;
  std::string help;      ///< sentences
  std::string fallback;  ///< its value where the variable is not set; empty: none
};

const std::vector<ScriptVariable>& script_variable_table();

}  // namespace dstune
