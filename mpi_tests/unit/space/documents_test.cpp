/// Documents, and their members, problems and warnings: data/documents.txt. Words before a
/// document, as "release 0.19.8 ranks 4", say what is given beside it; "show configs" adds the
/// config of each member that runs, "show assumptions" what is assumed.
#include <iterator>
#include <sstream>

#include <fmt/ranges.h>

#include "choices.hpp"
#include "dstune/base/text.hpp"
#include "golden.hpp"
#include "space_fixture.hpp"

namespace dstune {
namespace {

class DocumentsTest : public SpaceTest {
 protected:
  /// Takes the words before a document; nothing of an earlier one stays.
  void give(const std::string& words) {
    version_ = Version{0, 19, 6};
    default_ranks_ = 1;
    overrides_ = {};
    shown_.clear();
    machine_.reset();
    std::istringstream stream(words);
    for (std::string word, value; stream >> word >> value;) {
      if (word == "release") version_ = parse_version(value);
      if (word == "ranks") default_ranks_ = std::stoi(value);
      if (word == "show") shown_ = value;
      if (word == "grids") overrides_.full = value == "full";
      if (word != "nodes") continue;
      machine_.emplace();
      for (const std::string_view ranks : split(value, ','))
        machine_->ranks_of_node.push_back(std::stoi(std::string(ranks)));
    }
  }

  /// Names of members in a line, in parentheses of those that do not run; their reasons; warnings.
  std::vector<std::string> members_of(const std::string& text) {
    const JobSpec read = job(text);
    std::vector<std::string> names, lines;
    const SearchSpace space(read);
    for (const Member& member : space.members()) {
      names.push_back(member.is_pruned ? "(" + member.name + ")" : member.name);
      if (member.is_pruned)
        lines.push_back(member.name + ": " + member.reason);
      else if (shown_ == "configs")
        lines.push_back(member.name + " " + space.experiment(member).ds_config.dump());
    }
    if (shown_ != "configs") lines.insert(lines.begin(), fmt::format("{}", fmt::join(names, " ")));
    if (shown_ == "assumptions")
      for (const std::string& assumption : read.assumptions) lines.push_back(assumption);
    for (const std::string& warning : read.warnings) lines.push_back("warning: " + warning);
    return lines;
  }
  std::string shown_;

  /// "line pointer: message" of each problem, else the members.
  std::vector<std::string> answer(const std::string& text) {
    try {
      return members_of(text);
    } catch (const InputError& error) {
      std::vector<std::string> lines;
      for (const Problem& problem : error.problems())
        lines.push_back(fmt::format("{} {}: {}", problem.line, problem.pointer, problem.message));
      return lines;
    }
  }
};

TEST_F(DocumentsTest, BecomeMembersProblemsAndWarnings) {
  test::expect_golden(DSTUNE_SPACE_DATA "/documents.txt", [&](const std::string& input) {
    const std::size_t begin = input.find('{');
    give(input.substr(0, begin));
    return test::answers_to(input.substr(begin), [&](const std::string& text) {
      std::string found = fmt::format("{}", fmt::join(answer(text), "\n"));
      const std::string folder = folder_.string();
      for (std::size_t at = 0; (at = found.find(folder)) != std::string::npos;)
        found.replace(at, folder.size(), "FOLDER");
      return found;
    });
  });
}

}  // namespace
}  // namespace dstune
