// Jobs with DeepSpeed's engine that are refused before anything runs. They need no torch.
#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class EngineRefusalTest : public JobTest {
 protected:
  EngineRefusalTest() { job_.write_text("train.py", "pass\n"); }
  void write_space(const Json& workload) {
    Json space = synthetic_space({1}, {1});
    space["dstune"]["workload"] = {{"type", "deepspeed"}};
    space["dstune"]["workload"].update(workload);
    job_.write("space.json", space);
  }
  void expect_refused(const std::vector<std::string>& parts) {
    e2e::expect_refused(job_, command(), bad_input, parts);
  }
  /// A folder in front of all others has a torch that is none.
  void expect_lacking(std::vector<std::string> args, const std::string& place) {
    job_.write_text("packages/torch/__init__.py", "raise ImportError('no torch here')\n");
    const Ended ended =
        run_with({{"PYTHONPATH", (job_.folder() / "packages").string()}}, std::move(args));
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, "can not import torch"), 1) << ended;
    EXPECT_EQ(count_of(ended.err, " " + place + ": "), 1) << place << '\n' << ended;
    EXPECT_FALSE(job_.exists(results + "journal.jsonl"));
  }
};

TEST_F(EngineRefusalTest, APythonThatIsNoneIsNamedAndAPlanNeedsNone) {
  write_space({{"script", "train.py"}, {"python", "nowhere"}});
  expect_refused({"is no program", "/dstune/workload"});
  ranks_ = 0;
  EXPECT_EQ(run({"--dry-run"}).exit_code, done);
}

TEST_F(EngineRefusalTest, WhatThePythonLacksIsNamedWhereTheEngineIsAskedFor) {
  write_space({{"script", "train.py"}, {"python", "/usr/bin/python3"}});
  expect_lacking({}, "/dstune/workload");
  Json space = transformer_space({2});
  space["dstune"]["training_command"] = "deepspeed train.py --deepspeed_config $CONFIG";
  write_transformer(job_, space);
  expect_lacking({"--verify"}, "--verify");
  expect_lacking({"--verify=train.py"}, "--verify=train.py");
  space["dstune"]["verify"] = Json::object();
  job_.write("space.json", space);
  expect_lacking({"--verify"}, "/dstune/verify");
}

TEST_F(EngineRefusalTest, AWorkloadWithNothingToTrainIsRefused) {
  write_space(Json::object());
  expect_refused({"has nothing to train", "/dstune"});
}

TEST_F(EngineRefusalTest, AReleaseThatIsTooOldIsRefused) {
  Json space = synthetic_space({1}, {1});
  space["dstune"]["workload"] = {{"type", "deepspeed"}, {"script", "train.py"}};
  space["dstune"]["deepspeed_version"] = "0.15.4";
  job_.write("space.json", space);
  expect_refused({"can not run in the ranks of a job", "/dstune/workload"});
}

}  // namespace
}  // namespace dstune::e2e
