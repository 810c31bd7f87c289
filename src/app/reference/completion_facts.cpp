#include "completion_facts.hpp"

#include <algorithm>

#include "dstune/base/text.hpp"

namespace dstune {

CommandArguments arguments_of(Command command) {
  CommandArguments arguments;
  for (const CommandRow& row : command_table()) {
    if (row.command != command) continue;
    for (std::string_view word : split(row.usage, ' ')) {
      const bool repeats = word.ends_with("...");
      if (repeats) word.remove_suffix(3);
      if (word.find('|') != word.npos)
        for (const std::string_view choice : split(word, '|'))
          arguments.first_words.emplace_back(choice);
      else if (word == "space.json" || word == "FILE")
        arguments.kind = ValueKind::file;
      else if (word == "[DIR]")
        arguments.kind = ValueKind::folder;
      arguments.repeats = arguments.repeats || repeats;
    }
  }
  return arguments;
}

std::vector<CommandRow> distinct_commands() {
  std::vector<CommandRow> rows;
  for (const CommandRow& row : command_table())
    if (std::ranges::find(rows, row.command, &CommandRow::command) == rows.end())
      rows.push_back(row);
  return rows;
}

std::string shell_name(const CommandRow& row) {
  return row.name.empty() ? "job" : row.name;
}

std::string brief(const std::string& help) {
  const std::size_t end = std::min({help.find(": "), help.find("; "), help.find(" (")});
  return help.substr(0, end);
}

}  // namespace dstune
