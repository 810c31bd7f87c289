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

/// For the manual pages; `1` is what is typed.
inline constexpr std::string_view exit_note =
    "All ranks leave with the same code. `exit_status.json` in the results folder has it, too. A "
    "script should read that file, since the code of `mpirun` may be another one.";

/// Every code, the lowest first.
const std::vector<ExitRow>& exit_table();

}  // namespace dstune
