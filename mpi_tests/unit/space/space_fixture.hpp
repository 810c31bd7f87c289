#pragma once
/// Documents in a folder of the test's own, and what is wrong with them.

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/space/search_space.hpp"
#include "folder_test.hpp"

namespace dstune {

/// A member and its config.
struct FoundMember : Member {
  Experiment experiment;
};

class SpaceTest : public test::FolderTest {
 protected:
  /// The job of a document; a model is given unless the document has one.
  JobSpec job(const std::string& text) {
    Overrides overrides = overrides_;
    overrides.deepspeed_version = version_;
    if (!overrides.model && text.find("\"model\"") == std::string::npos) overrides.model = "gpt2";
    return read_job(write("space.json", text), overrides, machine_, default_ranks_);
  }

  /// All members, as "name" or "name: reason".
  std::vector<std::string> names(const std::string& text) {
    std::vector<std::string> found;
    for (const auto& member : members(text))
      found.push_back(member.name + (member.is_pruned ? ": " + member.reason : ""));
    return found;
  }
  std::vector<FoundMember> members(const std::string& text) {
    const auto read = job(text);
    const SearchSpace space(read);
    std::vector<FoundMember> found;
    for (const auto& member : space.members()) found.push_back({member, space.experiment(member)});
    expect_made_alike(space, found);
    return found;
  }

  /// Members that are made by their numbers are those of the walk, in any order.
  static void expect_made_alike(const SearchSpace& space, const std::vector<FoundMember>& members) {
    const MemberMaker maker(space);
    for (std::size_t index = 0; index < members.size(); ++index) {
      const std::size_t place = index % 2 == 0 ? index : members.size() - index;
      const FoundMember& member = members[place];
      const Experiment& experiment = member.experiment;
      const Experiment made = maker.experiment(member.number);
      EXPECT_EQ(made.ds_config, experiment.ds_config) << member.name;
      EXPECT_EQ(made.config, experiment.config) << member.name;
      EXPECT_EQ(made.shape, experiment.shape) << member.name;
      EXPECT_EQ(made.written_out, experiment.written_out) << member.name;
      EXPECT_EQ(made.name != member.name, member.has_other_name) << member.name;
      EXPECT_EQ(maker.shape(member.number), member.shape) << member.name;
      EXPECT_EQ(maker.micro_batch_chain(member.number), member.micro_batch_chain) << member.name;
    }
  }

  /// "line pointer" of each problem.
  std::vector<std::string> places(const std::string& text) {
    std::vector<std::string> found;
    for (const auto& problem : problems(text)) {
      found.push_back(std::to_string(problem.line) + " " + problem.pointer);
    }
    return found;
  }
  std::vector<Problem> problems(const std::string& text) {
    try {
      job(text);
    } catch (const InputError& error) {
      return error.problems();
    }
    return {};
  }

  Overrides overrides_;
  std::optional<Version> version_ = Version{0, 19, 6};
  std::optional<Machine> machine_;
  int default_ranks_ = 1;
};

}  // namespace dstune
