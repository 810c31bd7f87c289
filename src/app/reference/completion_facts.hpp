#pragma once
/// The parts of the tables that every shell's completion needs. Local.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "option_table.hpp"

namespace dstune {

/// Endings of the names of configs.
inline constexpr std::array<std::string_view, 4> config_endings{"json", "hjson", "yaml", "yml"};

/// The words behind a command that are no options, as its usage has them.
struct CommandArguments {
  std::vector<std::string> first_words;  ///< the first of them is one of these, if there are any
  ValueKind kind = ValueKind::none;      ///< of those behind: file for configs, folder, or none
  bool repeats = false;
};

[[nodiscard]] CommandArguments arguments_of(Command command);

/// Each command once, a job first.
[[nodiscard]] std::vector<CommandRow> distinct_commands();
/// "job" for a job.
[[nodiscard]] std::string shell_name(const CommandRow& row);

/// The first part of a help text: what stands before a colon, a semicolon or a parenthesis.
[[nodiscard]] std::string brief(const std::string& help);

}  // namespace dstune
