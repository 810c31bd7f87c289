// Jobs with DeepSpeed's engine that are refused before anything runs. They need no torch.
#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int bad_input = 3;

class EngineRefusalTest : public testing::Test {
 protected:
  void write_space(const Json& workload) {
    Json space = synthetic_space({1}, {1});
    space["dstune"]["workload"] = {{"type", "deepspeed"}};
    space["dstune"]["workload"].update(workload);
    job_.write("space.json", space);
  }
  void expect_refused(const std::string& words, const std::string& pointer) {
    const auto before = job_.contents_but_the_end();
    const Ended ended = job_.run({.ranks = 2, .args = {"space.json"}});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, words), 1) << words << '\n' << ended;
    EXPECT_EQ(count_of(ended.err, pointer), 1) << pointer << '\n' << ended;
    EXPECT_EQ(job_.contents_but_the_end(), before);
  }
  Job job_;
};

TEST_F(EngineRefusalTest, APythonThatIsNoneIsNamed) {
  job_.write_text("train.py", "pass\n");
  write_space({{"script", "train.py"}, {"python", "nowhere"}});
  expect_refused("is no program", "/dstune/workload");
}

TEST_F(EngineRefusalTest, WhatThePythonLacksIsNamed) {
  // A folder in front of all others, in which torch is none.
  job_.write_text("packages/torch/__init__.py", "raise ImportError('no torch here')\n");
  job_.write_text("train.py", "pass\n");
  write_space({{"script", "train.py"}, {"python", "/usr/bin/python3"}});
  const Ended ended =
      job_.run({.ranks = 2,
                .args = {"space.json"},
                .environment = {{"PYTHONPATH", (job_.folder() / "packages").string()}}});
  EXPECT_EQ(ended.exit_code, bad_input) << ended;
  EXPECT_EQ(count_of(ended.err, "can not import torch"), 1) << ended;
  EXPECT_FALSE(job_.exists(results + "journal.jsonl"));
}

TEST_F(EngineRefusalTest, AProblemNamesWhereTheEngineIsAskedFor) {
  job_.write_text("packages/torch/__init__.py", "raise ImportError('no torch here')\n");
  job_.write_text("train.py", "pass\n");
  job_.write("config.json", tiny_gpt2_config());
  Json space = transformer_space({2});
  space["dstune"]["training_command"] = "deepspeed train.py --deepspeed_config $CONFIG";
  const auto expect_place = [&](std::vector<std::string> args, const std::string& place) {
    job_.write("space.json", space);
    args.emplace_back("space.json");
    const Ended ended =
        job_.run({.ranks = 2,
                  .args = args,
                  .environment = {{"PYTHONPATH", (job_.folder() / "packages").string()}}});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, "can not import torch"), 1) << ended;
    EXPECT_EQ(count_of(ended.err, " " + place + ": "), 1) << place << '\n' << ended;
    EXPECT_FALSE(job_.exists(results + "journal.jsonl"));
  };
  expect_place({"--verify"}, "--verify");
  expect_place({"--verify=train.py"}, "--verify=train.py");
  space["dstune"]["verify"] = Json::object();
  expect_place({"--verify"}, "/dstune/verify");
}

TEST_F(EngineRefusalTest, AWorkloadWithNothingToTrainIsRefused) {
  write_space(Json::object());
  expect_refused("has nothing to train", "/dstune");
}

TEST_F(EngineRefusalTest, AReleaseThatIsTooOldIsRefused) {
  job_.write_text("train.py", "pass\n");
  Json space = synthetic_space({1}, {1});
  space["dstune"]["workload"] = {{"type", "deepspeed"}, {"script", "train.py"}};
  space["dstune"]["deepspeed_version"] = "0.15.4";
  job_.write("space.json", space);
  expect_refused("can not run in the ranks of a job", "/dstune/workload");
}

TEST_F(EngineRefusalTest, APlanNeedsNoPython) {
  job_.write_text("train.py", "pass\n");
  write_space({{"script", "train.py"}, {"python", "nowhere"}});
  const Ended ended = job_.run({.ranks = 0, .args = {"--dry-run", "space.json"}});
  EXPECT_EQ(ended.exit_code, 0) << ended;
}

}  // namespace
}  // namespace dstune::e2e
