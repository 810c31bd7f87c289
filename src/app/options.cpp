#include "options.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/space/reference.hpp"
#include "help_text.hpp"
#include "job_options.hpp"
#include "option_values.hpp"

namespace dstune {
namespace {

namespace po = boost::program_options;
using Strings = std::vector<std::string>;

/// The command that the first word asks for: `job` where it is an option or a file. Throws
/// UsageError where it is an unknown command: no such file is there, and no file of a space has
/// such a name.
Command command_of(const std::string& word) {
  const auto row = std::ranges::find(command_table(), word, &CommandRow::name);
  if (!word.empty() && row != command_table().end()) return row->command;
  std::error_code ignored;
  if (word.empty() || word.starts_with('-') || word.find_first_of("./") != word.npos ||
      std::filesystem::exists(word, ignored))
    return Command::job;
  const std::vector<std::string_view> names = command_names();
  throw UsageError(
      fmt::format("\"{}\" is neither a command ({}) nor a file{}; --help lists the options", word,
                  fmt::join(names, ", "), json::suggestion(word, names)));
}

/// "--time-limit 10m (600 s)"
std::vector<std::string> understood_options(const po::variables_map& map) {
  const OptionValues given(map);
  std::vector<std::string> lines;
  for (const auto& [name, value] : map) {
    std::string line = name == "space" ? name : "--" + name;
    if (const auto* const texts = boost::any_cast<Strings>(&value.value()))
      line += fmt::format(" {}", fmt::join(*texts, " "));
    else if (const auto* const text = boost::any_cast<std::string>(&value.value());
             text != nullptr && !text->empty())
      line += " " + *text;
    if (name == "time-limit" || name == "reserve" || name == "trial-timeout")
      line += fmt::format(" ({} s)", given.duration_s(name.c_str()).value_or(0));
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Returns the folder that is looked at. Throws UsageError.
std::string folder_of_status(const OptionValues& given) {
  const Strings folders = given.all("space");
  if (folders.size() > 1)
    throw UsageError(fmt::format("status takes one results folder, not {}: {}", folders.size(),
                                 fmt::join(folders, " ")));
  return folders.empty() ? "autotuning_results" : folders.front();
}

/// A machine is checked without these: they are for files.
constexpr std::array<std::string_view, 8> of_checked_files{
    "deepspeed-version", "gpus-per-node", "nodes",   "hostfile",
    "include",           "exclude",       "command", "strict"};

/// The options that a check takes: "--backend, --format".
std::string options_of_check(bool is_of_files) {
  Strings names;
  for (const OptionRow& row : option_table())
    if (takes(Command::check, row) && row.name != "help" && row.name != "version" &&
        (is_of_files || std::ranges::find(of_checked_files, row.name) == of_checked_files.end()))
      names.push_back("--" + row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Returns the reason why a command does not take an option.
std::string refusal_of(Command command, const OptionRow& option, bool is_of_files) {
  if (command == Command::status)
    return fmt::format("status has no --{}: write dstune-mpi status [--format json] DIR",
                       option.name);
  if (command == Command::check)
    return fmt::format("check {} has no --{}: it takes {}", is_of_files ? "FILE" : "of a machine",
                       option.name, options_of_check(is_of_files));
  if (command == Command::plan && takes(Command::job, option))
    return fmt::format("a plan writes no file: leave --{} out, or run the space", option.name);
  if (command == Command::job && takes(Command::plan, option))
    return fmt::format("--{} is for plans (dstune-mpi plan): a job trains where it runs",
                       option.name);
  std::vector<std::string_view> others;
  for (const CommandRow& row : command_table())
    if (takes(row.command, option) && !row.name.empty()) others.emplace_back(row.name);
  return fmt::format("--{} is for dstune-mpi {}: leave it out", option.name, others.front());
}

/// Throws UsageError where an option was given that the command does not take.
void refuse_options_of_others(Command command, const po::variables_map& map) {
  const bool is_of_files = map.count("space") > 0;
  if (command == Command::job && map.count("dry-run") > 0) command = Command::plan;
  for (const OptionRow& row : option_table()) {
    if (map.count(row.name) == 0) continue;
    const bool is_for_files =
        std::ranges::find(of_checked_files, row.name) != of_checked_files.end();
    if (!takes(command, row) || (command == Command::check && !is_of_files && is_for_files))
      throw UsageError(refusal_of(command, row, is_of_files));
  }
}

/// Returns the words as Boost is to read them.
Strings words_to_parse(int argc, const char* const* argv) {
  Strings words;
  for (int place = 1; place < argc; ++place) {
    const std::string_view word = argv[place];
    if (word == "-h")
      words.emplace_back("--help");
    else if (word == "--verify")
      words.push_back(std::string("--verify=") + own_script);
    else
      words.emplace_back(word);
  }
  return words;
}

/// The option that a word with dashes comes near to, in words.
std::string option_suggestion(const std::string& word) {
  const std::size_t begin = std::min(word.find_first_not_of('-'), word.size());
  Strings names;
  for (const OptionRow& row : option_table()) names.push_back("--" + row.name);
  return json::suggestion("--" + word.substr(begin, word.find('=') - begin),
                          {names.begin(), names.end()});
}

/// Throws UsageError.
po::variables_map parse(const Strings& words) {
  po::options_description all;
  all.add(described_options(Command::job));
  all.add_options()("space", po::value<Strings>());
  po::positional_options_description positional;
  positional.add("space", -1);
  po::variables_map map;
  try {
    // No guessing: an abbreviation that works today would be ambiguous tomorrow.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing &
                      ~po::command_line_style::allow_short;
    po::store(po::command_line_parser(words).options(all).positional(positional).style(style).run(),
              map);
  } catch (const po::unknown_option& error) {
    const std::string name = error.get_option_name();
    throw UsageError(fmt::format("there is no option {}{}; --help lists the options",
                                 name.substr(0, name.find('=')), option_suggestion(name)));
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; --help lists the options");
  }
  return map;
}

/// Throws UsageError where a command stands behind an option, or a word that comes near to one.
void refuse_late_command(const Strings& spaces) {
  const std::vector<std::string_view> names = command_names();
  for (const std::string& word : spaces) {
    std::error_code ignored;
    const auto meant = json::nearest(lower_case(word), names);
    if (!meant || std::filesystem::exists(word, ignored)) continue;
    throw UsageError(
        fmt::format("the command comes first: write dstune-mpi {} before all options "
                    "and files, not {} behind them",
                    *meant, word));
  }
}

/// Returns the one space that is given. Throws UsageError.
std::string only_space(const Strings& spaces, std::string_view command) {
  if (spaces.empty())
    throw UsageError(fmt::format("no space.json is given: {} [options] space.json", command));
  refuse_late_command(spaces);
  std::error_code ignored;
  for (const std::string& word : spaces)
    if (word.starts_with('-') && !std::filesystem::exists(word, ignored))
      throw UsageError(fmt::format("{} is neither an option nor a file{}; --help lists the options",
                                   word, option_suggestion(word)));
  if (spaces.size() > 1)
    throw UsageError(
        fmt::format("more than one space.json, {} and {}: give one of them, and each "
                    "option's value behind the option",
                    spaces[0], spaces[1]));
  return spaces.front();
}

/// Help is asked of a command or a key. Throws UsageError.
void fill_help(Strings words, CommandLine& line) {
  std::erase_if(words, [](const std::string& word) { return word == "--help" || word == "-h"; });
  if (words.empty()) return;
  if (words.size() > 1)
    throw UsageError(fmt::format("help takes one command or key, not {}", fmt::join(words, " ")));
  const std::string& word = words.front();
  const auto row = std::ranges::find(command_table(), word, &CommandRow::name);
  if (!word.empty() && row != command_table().end()) {
    line.command = row->command;
    return;
  }
  line.key_help = help_of_key(word);
  if (!line.key_help.empty()) return;
  const std::string key = suggested_key(word);
  throw UsageError(
      fmt::format("there is no command {} and no such key{}; dstune-mpi help lists the commands, "
                  "docs/keys.md the keys",
                  word, key.empty() ? json::suggestion(word, command_names()) : key));
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  for (int i = 0; i < argc; ++i) {
    if (i > 0) line.job.command_line += ' ';
    line.job.command_line += argv[i];
  }
  line.command = argc > 1 ? command_of(argv[1]) : Command::job;
  line.help = line.command == Command::help;
  if (line.help) {
    if (argc > 2) fill_help({argv + 2, argv + argc}, line);
    return line;
  }
  if (line.command != Command::job) {
    --argc;
    ++argv;
  }
  const po::variables_map map = parse(words_to_parse(argc, argv));
  line.help = map.count("help") > 0;
  line.version = map.count("version") > 0;
  if (line.help || line.version) return line;

  // A batch script is printed for a space that is read as for a plan.
  line.job.dry_run = line.command == Command::plan || line.command == Command::batch;
  line.check = line.command == Command::check;
  const OptionValues given(map);
  fill(given, line);
  refuse_options_of_others(line.command, map);
  if (line.command == Command::status) {
    line.status_of = folder_of_status(given);
  } else if (line.check) {
    line.check_files = given.all("space");
    line.training_command = given.text("command");
    line.is_strict = given.has("strict");
  } else if (line.command == Command::batch) {
    const Strings words = given.all("space");
    line.batch = batch_request(words.empty() ? "" : words.front(), given);
    line.job.space_path =
        only_space({words.begin() + 1, words.end()}, "dstune-mpi batch " + words.front());
  } else {
    line.job.space_path = only_space(
        given.all("space"), line.job.dry_run ? "dstune-mpi plan" : "mpirun -np N dstune-mpi");
  }
  line.understood = understood_options(map);
  return line;
}

}  // namespace dstune
