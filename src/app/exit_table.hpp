#pragma once
/// The exit codes in words, for --help and the manual page. Local.

#include <string_view>
#include <vector>

#include "dstune/base/error.hpp"

namespace dstune {

struct ExitRow {
  ExitCode code;
  std::string_view words;  ///< "bad input"
  std::string_view more;   ///< for the manual page: a sentence, or nothing
};

/// Every code, the lowest first.
const std::vector<ExitRow>& exit_table();

}  // namespace dstune
