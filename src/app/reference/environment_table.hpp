#pragma once
/// The environment variables that the program reads, for the manual page. Local.

#include <string>
#include <vector>

namespace dstune {

struct VariableRow {
  std::vector<std::string> names;
  std::string help;  ///< sentences
};

const std::vector<VariableRow>& environment_table();

}  // namespace dstune
