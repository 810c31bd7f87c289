// The manual pages and completions have all that the tables have.
#include "manuals.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "completion_facts.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "dstune/report/batch_script.hpp"
#include "dstune/report/result_files.hpp"
#include "dstune/space/reference.hpp"
#include "environment_table.hpp"
#include "exit_table.hpp"
#include "option_table.hpp"
#include "roff.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Release release{"1.2.3", "2026-11-29"};

TEST(ProgramPageTest, HasAllOfTheTables) {
  const std::string page = program_page(release);
  for (const CommandRow& row : command_table())
    EXPECT_THAT(page, HasSubstr(roff::marked(row.help + ".").substr(0, 40)));
  for (const OptionRow& option : option_table()) {
    const std::string tag = ".TP\n" + roff::bold("--" + option.name);
    const std::size_t at = page.find(tag);
    EXPECT_NE(at, page.npos) << option.name << " is described";
    EXPECT_EQ(page.find(tag + "\n", at + 1), page.npos) << option.name << " is described once";
  }
  for (const ExitRow& row : exit_table())
    EXPECT_THAT(page, HasSubstr(".TP\n" + roff::bold(std::to_string(static_cast<int>(row.code)))));
  for (const ResultFile& file : result_files())
    EXPECT_THAT(page, HasSubstr(roff::escaped(file.path.substr(file.path.find('/') + 1))));
  for (const VariableRow& row : environment_table())
    for (const std::string& name : row.names) EXPECT_THAT(page, HasSubstr(roff::bold(name)));
  EXPECT_THAT(page, StartsWith(".TH DSTUNE\\-MPI 1 \"2026-11-29\" \"dstune\\-mpi 1.2.3\""));
}

TEST(ProgramPageTest, TellsAtEachCommandWhatItTakes) {
  const std::string page = program_page(release);
  const std::size_t begin = page.find(".SS \"For status\"");
  ASSERT_NE(begin, page.npos);
  const std::string status = page.substr(begin, page.find("\n.S", begin + 1) - begin);
  for (const OptionRow& option : option_table())
    EXPECT_EQ(status.find(roff::bold("--" + option.name)) != status.npos,
              takes(Command::status, option))
        << option.name;
}

TEST(SpacePageTest, HasEveryKeyWithItsFacts) {
  std::string page = space_page(release);
  // Long keys may go on in another line.
  constexpr std::string_view line_break = "\\:";
  for (std::size_t at = page.find(line_break); at != page.npos; at = page.find(line_break, at))
    page.erase(at, line_break.size());
  std::size_t num_keys = 0;
  for (const KeyGroup& group : key_groups())
    for (const KeyWords& key : group.keys) {
      const std::string type = key.type.substr(0, key.type.find_first_of(":,;"));
      EXPECT_THAT(page, HasSubstr(".TP\n" + roff::bold(key.path) + "\n" + type)) << key.path;
      ++num_keys;
    }
  EXPECT_GT(num_keys, 300u);
  std::string filled = page;
  std::ranges::replace(filled, '\n', ' ');
  EXPECT_THAT(filled, HasSubstr("\\fBzero_optimization.stage\\fR integer, 0 to 3; default"));
  EXPECT_THAT(filled, HasSubstr("releases: from 0.19.6;"));
}

/// Requests that the pages use; any other line that begins with a point would be lost.
TEST(PagesTest, AreCleanSources) {
  const std::set<std::string> requests{".TH", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE",
                                       ".EX", ".EE", ".nf", ".fi", ".nh", ".ad", ".ds"};
  for (const std::string& page : {program_page(release), space_page(release)}) {
    bool is_example = false, is_tag = false;
    for (const std::string_view line : lines_of(page)) {
      EXPECT_TRUE(!line.starts_with('.') || requests.contains(std::string(line.substr(0, 3))))
          << line;
      EXPECT_FALSE(line.starts_with('\'')) << line;
      EXPECT_FALSE(line.empty() || line.ends_with(' ')) << "a blank at the end of: " << line;
      // Examples and the synopsis keep their lines.
      const bool is_end = line.starts_with(".EE") || line.starts_with(".fi");
      is_example = line.starts_with(".EX") || line.starts_with(".nf") || (is_example && !is_end);
      const bool is_filled = !is_example && !is_tag && line.find(' ') != line.npos;
      EXPECT_TRUE(!is_filled || line.size() <= 100) << line;
      is_tag = line == ".TP";
    }
  }
}

std::string committed_options_page() {
  std::ostringstream text;
  text << std::ifstream(std::filesystem::path(DSTUNE_SOURCES) / "docs" / "options.md").rdbuf();
  return text.str();
}

TEST(OptionsPageTest, CommittedPageIsUpToDate) {
  EXPECT_TRUE(committed_options_page() == options_page())
      << "run cmake --build build/release --target reference";
}

TEST(OptionsPageTest, HasAllOfTheTables) {
  const std::string page = options_page();
  for (const CommandRow& row : command_table())
    EXPECT_THAT(page, HasSubstr("\n- `" + row.usage + "`: "));
  for (const OptionRow& option : option_table()) {
    const std::string item = "\n- `--" + option.name;
    const char behind = option.form.empty() ? '`' : is_value_optional(option) ? '[' : ' ';
    EXPECT_THAT(page, HasSubstr(item + behind));
    EXPECT_THAT(page, HasSubstr(fmt::format("\n### {}\n", option.theme)));
  }
  for (const ExitRow& row : exit_table())
    EXPECT_THAT(page, HasSubstr(fmt::format("\n- `{}`: ", static_cast<int>(row.code))));
  for (const VariableRow& row : environment_table())
    for (const std::string& name : row.names) EXPECT_THAT(page, HasSubstr("`" + name + "`"));
  for (const std::string_view line : lines_of(page)) EXPECT_LE(line.size(), 100u) << line;
}

TEST(OptionsPageTest, TellsAtEachCommandWhatItTakes) {
  const std::string page = options_page();
  const std::string begin = "\n`status`:\n\n```text\n";
  const std::size_t at = page.find(begin);
  ASSERT_NE(at, page.npos);
  EXPECT_TRUE(std::string_view(page)
                  .substr(at + begin.size())
                  .starts_with("--format --color --version --help\n```\n"));
}

TEST(ScriptVariableTest, EachIsASettingOfScripts) {
  BatchJob job;
  job.tuning_before_training_s = 3600;
  const std::string script = batch_script(job, BatchSystem::slurm);
  for (const ScriptVariable& row : script_variable_table()) {
    EXPECT_THAT(script, HasSubstr(row.name + "=${" + row.name + ":-")) << row.name;
    EXPECT_EQ(row.help.back(), '.') << row.name;
  }
}

TEST(RoffTest, PrintsWhatMeansSomethingToIt) {
  EXPECT_EQ(roff::escaped("a-b\\c 'd' \"e\""), "a\\-b\\ec \\(aqd\\(aq \\(dqe\\(dq");
  EXPECT_EQ(roff::marked("take `--x`, else"), "take \\fB\\-\\-x\\fR, else");
  EXPECT_THROW((void)roff::escaped("\xC3\xA9"), LogicError);
  roff::Page page("X", 1, "", "x", "y");
  page.item(".hidden", "'quoted' word. .begins");
  page.paragraph("one. Two... three. Four");
  const std::string classes(40, 'c');
  page.paragraph("[" + classes + ",a." + classes + "] has 1,000");
  EXPECT_THAT(page.text(), HasSubstr("\n\\&.hidden\n"));
  EXPECT_THAT(page.text(), HasSubstr("\n\\&.begins\n"));
  EXPECT_THAT(page.text(), HasSubstr("\none.\nTwo... three.\nFour\n"));
  EXPECT_THAT(page.text(), HasSubstr(classes + ",\\:a.\\:" + classes + "]\nhas 1,000\n"));
}

TEST(CompletionsTest, HaveEveryCommandOptionAndWord) {
  for (const std::string& text : {bash_completion(), zsh_completion(), fish_completion()}) {
    for (const std::string_view name : command_names()) EXPECT_THAT(text, HasSubstr(name));
    for (const OptionRow& option : option_table()) {
      // fish has options without dashes.
      const std::regex name("(--|-l )" + option.name + "(?![a-z-])");
      EXPECT_TRUE(std::regex_search(text, name)) << option.name;
      std::ostringstream words;
      for (const std::string& word : option.words)
        words << (words.str().empty() ? "" : " ") << word;
      EXPECT_THAT(text, HasSubstr(words.str())) << option.name;
    }
  }
}

TEST(CompletionsTest, ReadTheArgumentsOfACommandFromItsUsage) {
  EXPECT_EQ(arguments_of(Command::job).kind, ValueKind::file);
  EXPECT_FALSE(arguments_of(Command::plan).repeats);
  EXPECT_TRUE(arguments_of(Command::check).repeats);
  EXPECT_EQ(arguments_of(Command::status).kind, ValueKind::folder);
  EXPECT_EQ(arguments_of(Command::help).kind, ValueKind::none);
}

TEST(CompletionsTest, TakeTheFirstPartOfAHelp) {
  EXPECT_EQ(brief("seed of the tuner (default 0)"), "seed of the tuner");
  EXPECT_EQ(brief("the network: a, b"), "the network");
  EXPECT_EQ(brief("overwrites it; may repeat"), "overwrites it");
  EXPECT_EQ(brief("as --progress none"), "as --progress none");
}

TEST(CompletionsTest, DescribeEachOptionOfACommandInItsOwnWords) {
  // zsh takes options with the same description for one.
  for (const CommandRow& row : distinct_commands()) {
    std::set<std::string> told;
    for (const OptionRow& option : option_table())
      if (takes(row.command, option)) {
        EXPECT_TRUE(told.insert(brief(option.help)).second)
            << shell_name(row) << " --" << option.name << ": " << brief(option.help);
      }
  }
}

TEST(ManualsTest, HaveADateThatSourcesGive) {
  EXPECT_EQ(release_date(nullptr), "");
  EXPECT_EQ(release_date("1795000000"), "2026-11-18");
  for (const char* text : {"", "today", "1e9", "-1"})
    EXPECT_THROW((void)release_date(text), InputError) << text;
  std::vector<std::string> names;
  for (const Manual& manual : manuals(release)) names.push_back(manual.file);
  EXPECT_THAT(names, testing::ElementsAre("dstune-mpi.1", "dstune-space.5", "dstune-mpi.bash",
                                          "_dstune-mpi", "dstune-mpi.fish"));
}

/// All sources of the program, apart from this table.
std::string sources() {
  std::ostringstream text;
  for (const char* folder : {"src", "kernels"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::filesystem::path(DSTUNE_SOURCES) / folder)) {
      const std::string ending = entry.path().extension();
      if (ending != ".cpp" && ending != ".hpp" && ending != ".py") continue;
      if (entry.path().filename() == "environment_table.cpp") continue;
      text << std::ifstream(entry.path()).rdbuf();
    }
  return text.str();
}

TEST(EnvironmentTableTest, HasWhatTheSourcesRead) {
  std::set<std::string> listed;
  for (const VariableRow& row : environment_table())
    for (const std::string& name : row.names) {
      EXPECT_TRUE(listed.insert(name).second) << name;
      EXPECT_EQ(row.help.back(), '.') << name;
    }
  // For tests alone; and that of the program which writes the pages.
  const std::set<std::string> hidden{"DSTUNE_INJECT", "DSTUNE_POWERCAP", "DSTUNE_PRETEND_HOSTS",
                                     "OMPI_MCA_orte_bound_at_launch", "SOURCE_DATE_EPOCH"};
  const std::string text = sources();
  const std::regex read(R"re((?:getenv|number_in|variable|environ\.get)\("([A-Za-z_]+)")re");
  std::size_t num_read = 0;
  for (auto each = std::sregex_iterator(text.begin(), text.end(), read);
       each != std::sregex_iterator(); ++each) {
    const std::string name = (*each)[1];
    ++num_read;
    if (name == "PYTHONTRACEMALLOC" || name == "DSTUNE_ACTIVATION_RECOMPUTE") continue;
    EXPECT_TRUE(listed.contains(name) || hidden.contains(name)) << name << " is read";
  }
  EXPECT_GT(num_read, 20u);
  for (const std::string& name : listed)
    EXPECT_NE(text.find('"' + name + '"'), text.npos) << "nobody reads " << name;
}

}  // namespace
}  // namespace dstune
