#pragma once
/// The manual pages, docs/options.md and the shells' completions, from the tables of commands,
/// options, exit codes, variables, files and keys. Local.

#include <string>
#include <vector>

namespace dstune {

struct Release {
  std::string version;
  std::string date;  ///< "2026-11-29", or empty
};

/// dstune-mpi(1)
[[nodiscard]] std::string program_page(const Release& release);
/// dstune-space(5)
[[nodiscard]] std::string space_page(const Release& release);
/// docs/options.md
[[nodiscard]] std::string options_page();
[[nodiscard]] std::string bash_completion();
[[nodiscard]] std::string zsh_completion();
[[nodiscard]] std::string fish_completion();

struct Manual {
  std::string file;
  std::string text;
};

/// All of them, by the names of their files.
[[nodiscard]] std::vector<Manual> manuals(const Release& release);

/// The day of SOURCE_DATE_EPOCH, so that equal sources give equal pages; empty without it. Throws
/// InputError where it is no number of seconds.
[[nodiscard]] std::string release_date(const char* source_date_epoch);

}  // namespace dstune
