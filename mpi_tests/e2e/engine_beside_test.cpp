// Forecasts of our own step say where to look, and DeepSpeed's engine decides: `verify`.
#include <filesystem>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// In the user's own way.
constexpr const char* script = R"(import argparse
import os
import signal

import deepspeed
import torch

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
args = parser.parse_args()
deepspeed.init_distributed()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
data = torch.utils.data.TensorDataset(torch.randn(4096, 64))
engine, _, loader, _ = deepspeed.initialize(
    args=args, model=model, model_parameters=model.parameters(), training_data=data)
if os.path.exists("stop") and engine.zero_optimization_stage() == 1:
    os.kill(os.getpid(), signal.SIGTERM)
for step, (x,) in enumerate(loader):
    loss = engine(x).square().mean()
    engine.backward(loss)
    engine.step()
)";

class EngineBesideTest : public JobTest {
 protected:
  void SetUp() override {
    python_ = engine_python();
    if (python_.empty()) GTEST_SKIP() << no_engine_python;
    job_.write_text("train.py", script);
    job_.write("config.json", tiny_gpt2_config());
  }

  Json space(const Json& verify, const std::vector<int>& stages) {
    Json space = transformer_space({2});
    space["train_micro_batch_size_per_gpu"] = {1, 4};
    space["dstune"]["trial_budget_s"] = 0.5;
    space["dstune"]["training_command"] = "deepspeed train.py --deepspeed_config $CONFIG";
    space["dstune"]["verify"] = {{"python", python_}};
    space["dstune"]["verify"].update(verify);
    space["dstune"]["target"] = {{"measure", false}};
    space["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"torch_adam", true}}}};
    space["zero_optimization"] = {{"stage", stages}};
    return space;
  }
  Ended run(const Json& space, const std::vector<std::string>& flags = {}) {
    job_.write("space.json", space);
    std::vector<std::string> args = flags;
    args.emplace_back("space.json");
    return job_.run({.ranks = 2, .args = args, .limit_s = 400});
  }
  /// Events of the journal of a kind.
  int count(const std::string& kind) {
    return static_cast<int>(names_of(journal(job_), kind).size());
  }
  /// Experiments that the engine has measured.
  std::vector<Json> verified() {
    std::vector<Json> all;
    for (const auto& entry : std::filesystem::directory_iterator(job_.folder() / results)) {
      const std::string name = entry.path().filename().string();
      if (std::filesystem::exists(entry.path() / "verified.json"))
        all.push_back(job_.read_json(results + name + "/verified.json"));
    }
    return all;
  }

  std::string python_;
};

TEST_F(EngineBesideTest, TheUsersTrainingDecidesInTheSameJob) {
  const Json written = space(Json::object(), {0, 1});
  const Ended ended = run(written);
  ASSERT_EQ(ended.exit_code, 0) << ended;
  const Json optimal = optimal_of(job_);
  EXPECT_EQ(optimal["label"], "verified");
  const auto all = verified();
  ASSERT_FALSE(all.empty());
  for (const Json& one : all) EXPECT_EQ(one["instrument"], "engine");
  const std::string answer = results + optimal["name"].get<std::string>();
  EXPECT_EQ(job_.read_json(answer + "/verified.json"), job_.read_json(answer + "/metrics.json"));
  EXPECT_EQ(static_cast<int>(all.size()), count("finished")) << "our own step runs none";

  // The same command repeats nothing.
  const Ended again = run(written);
  ASSERT_EQ(again.exit_code, 0) << again;
  EXPECT_EQ(optimal_of(job_)["name"], optimal["name"]);
  EXPECT_EQ(count("started"), count("finished"));

  // A changed script is another experiment.
  const int before = count("finished");
  job_.write_text("train.py", std::string(script) + "# changed\n");
  const Ended changed = run(written);
  ASSERT_EQ(changed.exit_code, 0) << changed;
  EXPECT_GT(count("finished"), before);
}

TEST_F(EngineBesideTest, RandomTokensTrainTheModelWhereThereIsNoScript) {
  Json written = space(Json::object(), {0, 1});
  written["dstune"].erase("training_command");
  written["train_micro_batch_size_per_gpu"] = {1};
  const Ended ended = run(written);
  ASSERT_EQ(ended.exit_code, 0) << ended;
  EXPECT_EQ(optimal_of(job_)["label"], "engine");
}

TEST_F(EngineBesideTest, AStopInTheEngineIsResumed) {
  job_.write_text("stop", "");
  const Ended stopped = run(space(Json::object(), {0, 1}));
  ASSERT_EQ(stopped.exit_code, stopped_early) << stopped;
  const int finished = count("finished");
  std::filesystem::remove(job_.folder() / "stop");
  const Ended resumed = run(space(Json::object(), {0, 1}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed;
  EXPECT_EQ(optimal_of(job_)["label"], "verified");
  EXPECT_GT(count("finished"), finished);
  EXPECT_EQ(static_cast<int>(verified().size()), count("finished")) << "none ran twice";
}

TEST_F(EngineBesideTest, TinyEnginesMeasureTheTargetFirst) {
  Json written = space(Json::object(), {0, 1});
  written["dstune"].erase("target");
  written["train_micro_batch_size_per_gpu"] = {1};
  const Ended ended = run(written, {"--profile-out", "profile.json"});
  ASSERT_EQ(ended.exit_code, 0) << ended;
  if (ended.err.find("keeps the machine busy") != std::string::npos) {
    EXPECT_FALSE(job_.read_json("profile.json").contains("target"));
    GTEST_SKIP() << "something else runs on this machine";
  }
  EXPECT_THAT(ended.err, HasSubstr("tiny engines measured DeepSpeed's overhead")) << ended;
  const Json target = job_.read_json("profile.json")["target"];
  EXPECT_GE(target["engines"], 5);
  EXPECT_GT(target["costs_s"]["optimizer_step"], 0);
  EXPECT_GT(target["scale"]["fp32"], 0);
  EXPECT_LT(target["fit_error"], 0.5);
  const Json optimal = optimal_of(job_);
  EXPECT_EQ(optimal["label"], "verified");

  // A job that goes on knows them.
  written["train_micro_batch_size_per_gpu"] = {1, 2};
  std::filesystem::remove(job_.folder() / "profile.json");
  const Ended again = run(written, {"--profile-out", "profile.json"});
  ASSERT_EQ(again.exit_code, 0) << again;
  EXPECT_THAT(again.err, Not(HasSubstr("tiny engines"))) << again;
  EXPECT_EQ(job_.read_json("profile.json")["target"], target);
  int measured = 0;
  for (const Json& event : journal(job_)) measured += event["kind"] == "target" ? 1 : 0;
  EXPECT_EQ(measured, 1);
}

/// Without `verify`: Python is there for the tiny engines alone, and our own step answers.
TEST_F(EngineBesideTest, ATargetIsMeasuredForOurOwnStep) {
  Json written = space(Json::object(), {0, 1, 2});
  written["dstune"].erase("verify");
  written["dstune"].erase("training_command");
  written["dstune"]["target"] = {{"measure", true}, {"python", python_}};
  const Ended ended = run(written);
  ASSERT_EQ(ended.exit_code, 0) << ended;
  const Json optimal = optimal_of(job_);
  EXPECT_EQ(optimal["label"], "proxy");
  if (ended.err.find("keeps the machine busy") != std::string::npos) {
    EXPECT_FALSE(optimal["target"].contains("measured_here"));
    GTEST_SKIP() << "something else runs on this machine";
  }
  EXPECT_GE(optimal["target"]["measured_here"]["engines"], 5);
  EXPECT_THAT(optimal["target"]["source"].get<std::string>(), HasSubstr("measured here by "));
  EXPECT_THAT(ended.out, HasSubstr("tiny engines")) << ended;
  EXPECT_TRUE(verified().empty());
}

TEST(VerifyTest, RefusesWhatCanNotBeVerified) {
  Job job;
  Json written = synthetic_space({1}, {1});
  written["dstune"]["verify"] = Json::object();
  job.write("space.json", written);
  const Ended ended = job.run({.ranks = 1, .args = {"--dry-run", "space.json"}});
  EXPECT_EQ(ended.exit_code, bad_input) << ended;
  EXPECT_THAT(ended.err, HasSubstr("the workload transformer"));
}

}  // namespace
}  // namespace dstune::e2e
