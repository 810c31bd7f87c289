#include "help_text.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "exit_table.hpp"
#include "wrapped_text.hpp"

namespace dstune {
namespace {

namespace po = boost::program_options;
using Strings = std::vector<std::string>;

bool is_whole(Command command) {
  return command == Command::job || command == Command::help;
}

std::vector<CommandRow> shown_commands(Command command) {
  std::vector<CommandRow> rows;
  for (const CommandRow& row : command_table())
    if (is_whole(command) || row.command == command) rows.push_back(row);
  return rows;
}

std::string usage_lines(const std::vector<CommandRow>& rows) {
  std::size_t usage_width = 0;
  for (const CommandRow& row : rows) usage_width = std::max(usage_width, row.usage.size());
  std::string text;
  for (const CommandRow& row : rows)
    text += fmt::format("  {:{}}  {}\n", row.usage, usage_width,
                        wrapped_text(row.help, usage_width + 4));
  return text;
}

std::string exit_codes() {
  std::string codes = "Exit codes: ";
  for (const ExitRow& row : exit_table())
    codes += fmt::format("{}{} {}", row.code == ExitCode::ok ? "" : ", ",
                         static_cast<int>(row.code), row.words);
  return wrapped_text(codes + ".", 0) + "\n";
}

}  // namespace

po::options_description described_options(Command command) {
  po::options_description described("Options", line_columns, line_columns / 2);
  auto add = described.add_options();
  std::vector<OptionRow> rows = option_table();
  if (!is_whole(command)) {
    std::erase_if(rows, [&](const OptionRow& row) { return !takes(command, row); });
    // A command's own options come first.
    std::ranges::stable_partition(rows,
                                  [](const OptionRow& row) { return row.commands.size() == 1; });
  }
  for (const OptionRow& row : rows) {
    if (row.form.empty())
      add(row.name.c_str(), row.help.c_str());
    else if (row.repeats)
      add(row.name.c_str(), po::value<Strings>()->value_name(row.form), row.help.c_str());
    else
      add(row.name.c_str(), po::value<std::string>()->value_name(row.form), row.help.c_str());
  }
  return described;
}

std::string help_text(Command command) {
  std::ostringstream text;
  if (is_whole(command))
    text << "Finds the fastest DeepSpeed (ZeRO) configuration for a model on this machine, inside "
            "one MPI job.\n\n";
  text << usage_lines(shown_commands(command)) << "\n";
  if (is_whole(command))
    text << "space.json is a DeepSpeed config in which any value may be a list of candidates; "
            "docs/space.md\ndescribes it, and docs/keys.md each key. Progress goes to stderr, "
            "results to "
            "stdout and\n<results-dir>.\n\n";
  text << described_options(command) << "\n"
       << (is_whole(command) ? exit_codes() : "dstune-mpi --help has all commands and options.\n");
  return text.str();
}

}  // namespace dstune
