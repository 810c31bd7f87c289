// What DeepSpeed's engine is asked as a workload, and what becomes of its answers.
#include "dstune/instrument/engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "served_channel.hpp"

namespace dstune::engine {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* failure =
    R"({"ok": false, "error": {"kind": "exception", "message": "ValueError: no",
        "traceback": "File \"train.py\", line 3", "output": "epoch 0"}})";

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    spec.kind = WorkloadKind::deepspeed;
    spec.options = {{"type", "deepspeed"}, {"script", "/there/train.py"}};
    config.micro_batch = 2;
    config.accumulation_steps = 3;
  }

  /// By the command's name.
  std::string answer(const json::Value& command) {
    if (answer_step && command.at("command") == "step") return answer_step(command);
    const auto found = answers.find(command.at("command").get<std::string>());
    return found != answers.end() ? found->second : R"({"ok": true})";
  }

  std::unique_ptr<Workload> workload() {
    return engine.make_workload({.model = &model,
                                 .config = &config,
                                 .experiment_name = &name,
                                 .seed = 7,
                                 .device = &device,
                                 .group = &group,
                                 .waiter = &waiter,
                                 .ds_config = &ds_config,
                                 .settled = &settled},
                                {.attempt = 5,
                                 .arguments = {"--epochs", "3"},
                                 .leader_host = "127.0.0.1",
                                 .timeout_s = 60});
  }

  std::map<std::string, std::string> answers;
  std::function<std::string(const json::Value&)> answer_step;
  ServedChannel python{[this](const json::Value& command) { return answer(command); }};
  Engine engine{python.channel, {.world_rank = 0, .threads = 2}};
  WorkloadSpec spec;
  ModelSpec model;
  TrainingConfig config;
  SettledSteps settled;
  std::string name = "z0", ds_config = R"({"train_batch_size": 6})";
  CpuDevice device{std::int64_t{1} << 30, 1};
  SelfGroup group{0};
  Waiter waiter;
};

TEST_F(EngineTest, WhatPythonLoadedIsKept) {
  answers["prepare"] = R"({"ok": true, "versions": {"torch": "2.9"}, "paths": {"torch": "/t"},
    "script_hash": "abc", "operators": {"available": [], "missing": {"cpu_adam": "ds_build"}},
    "resident_bytes": 1000})";
  const Loaded& loaded = engine.prepare(spec, {80}, waiter);
  EXPECT_EQ(loaded.versions.at("torch"), "2.9");
  EXPECT_EQ(loaded.script_hash, "abc");
  EXPECT_EQ(loaded.missing_operators.at("cpu_adam"), "ds_build");
  EXPECT_EQ(loaded.resident_bytes, 1000);
  EXPECT_EQ(python.commands().front().at("workload").at("script"), "/there/train.py");
}

TEST_F(EngineTest, AnExperimentIsBuiltSteppedAndEnded) {
  answers["open_store"] = R"({"ok": true, "port": 4321})";
  answers["build"] =
      R"({"ok": true, "parameters": 10, "global_batch": 6, "notes": ["no workers"]})";
  answers["step"] = R"({"ok": true, "steps": [{"loss": 2.5, "step_s": 0.25, "forward_s": 0.1,
    "backward_s": 0.1, "update_s": 0.05, "skipped": false,
    "peak_resident_bytes": 5000000000000}]})";
  answers["end"] = R"({"ok": true, "wrote": ["out.txt"], "leaked": []})";
  const auto training = workload();
  training->build();
  training->initialize();
  const StepSample sample = training->step(0);
  EXPECT_EQ(sample.loss, 2.5);
  EXPECT_EQ(sample.step_s, 0.25);
  EXPECT_FALSE(sample.skipped);
  EXPECT_EQ(training->peak_memory().process_bytes, 5000000000000);
  EXPECT_EQ(training->flops_per_step(), 6.0 * 10 * 6 * 1024);
  EXPECT_THAT(engine.end(false, waiter), ElementsAre("no workers", "the script wrote out.txt"));
  EXPECT_THAT(engine.end(false, waiter), ElementsAre());  // nothing is left to end

  const json::Value build = python.commands().at(1);
  EXPECT_EQ(build.at("store").at("port"), 4321);
  EXPECT_EQ(build.at("ds_config").at("train_batch_size"), 6);
  EXPECT_EQ(build.at("global_batch"), 6);
  EXPECT_EQ(build.at("arguments"), json::Value({"--epochs", "3"}));
  EXPECT_EQ(build.at("backend"), "gloo");
  EXPECT_EQ(python.commands().size(), 4U);
}

TEST_F(EngineTest, AConfigurationThatIsBuiltAgainWarmsUpByWhatItTook) {
  EXPECT_EQ(workload()->warmup_need(), WarmupNeed{});
  workload()->note_warm_after(2);
  EXPECT_EQ(workload()->warmup_need(), (WarmupNeed{.least = 2, .is_watched = false}));
  ds_config = R"({"train_batch_size": 12})";
  EXPECT_EQ(workload()->warmup_need(), WarmupNeed{}) << "another one";
}

TEST_F(EngineTest, ShortStepsAreTakenSeveralAtOnce) {
  const auto training = workload();
  training->build();
  training->initialize();
  std::vector<int> asked;
  std::int64_t taken = 0;
  answer_step = [&](const json::Value& command) {
    asked.push_back(command.at("count").get<int>());
    json::Value steps = json::Value::array();
    for (int index = 0; index < asked.back(); ++index)
      steps.push_back({{"loss", taken + index}, {"step_s", 0.01}});
    return json::Value{{"ok", true}, {"steps", steps}}.dump();
  };
  // The answer is made when nothing is at hand: its first step is the one that is asked for.
  for (; taken < 40 || training->steps_at_hand() > 0; ++taken)
    EXPECT_EQ(training->step(taken).loss, static_cast<double>(taken));
  EXPECT_EQ(asked.front(), 1);
  EXPECT_GT(asked.back(), 5);
  EXPECT_LE(asked.back(), 10);  // a quarter of what came before
  EXPECT_TRUE(std::ranges::is_sorted(asked));
}

TEST_F(EngineTest, AReplyWithoutAStepIsAFailure) {
  answers["step"] = R"({"ok": true, "steps": []})";
  const auto training = workload();
  training->build();
  training->initialize();
  EXPECT_THROW(training->step(0), StepFailure);
}

TEST_F(EngineTest, AnExceptionIsAFailureWithItsTraceback) {
  answers["build"] = failure;
  const auto training = workload();
  training->build();
  try {
    training->initialize();
    FAIL();
  } catch (const StepFailure& error) {
    EXPECT_EQ(error.status(), Status::failed);
    EXPECT_STREQ(error.what(), "ValueError: no");
    EXPECT_EQ(error.details(), "epoch 0\n\nFile \"train.py\", line 3\nValueError: no\n");
  }
  engine.end(true, waiter);
  EXPECT_EQ(python.commands().back().at("failed"), true);
}

TEST_F(EngineTest, AFailureTellsWhatIsToBeKnownOfTheScript) {
  answers["build"] = R"({"ok": true, "global_batch": 6, "notes": ["no workers"]})";
  answers["step"] = R"({"ok": false, "error": {"kind": "exception", "message": "no",
    "notes": ["short batches"], "wrote": ["/there/out.txt"]}})";
  const auto training = workload();
  training->build();
  training->initialize();
  EXPECT_THROW(training->step(0), StepFailure);
  EXPECT_THAT(engine.take_notes(),
              ElementsAre("no workers", "short batches", "the script wrote /there/out.txt"));
  EXPECT_THAT(engine.take_notes(), ElementsAre());
  EXPECT_THAT(engine.end(true, waiter), ElementsAre());
}

TEST_F(EngineTest, OperatorsThatDoNotLoadAreBuiltAgain) {
  answers["operators"] = R"({"ok": true, "lacking": [["fused_adam"], []],
    "broken": {"fused_adam": "ImportError: of another Python"},
    "mends": {"fused_adam": "build it"}})";
  EXPECT_THAT(engine.lacking_operators({json::Value::object(), json::Value::object()}, waiter),
              ElementsAre(ElementsAre("fused_adam"), ElementsAre()));
  EXPECT_EQ(engine.loaded().missing_operators.at("fused_adam"), "build it");
}

TEST_F(EngineTest, MemoryThatRanOutIsThatStatus) {
  answers["step"] = R"({"ok": false, "error": {"kind": "out_of_memory", "message": "no"}})";
  const auto training = workload();
  training->build();
  training->initialize();
  try {
    training->step(0);
    FAIL();
  } catch (const StepFailure& error) {
    EXPECT_EQ(error.status(), Status::out_of_memory);
  }
}

TEST_F(EngineTest, AnotherGlobalBatchThanAskedForIsAFailure) {
  answers["build"] = R"({"ok": true, "global_batch": 8})";
  const auto training = workload();
  training->build();
  EXPECT_THROW(training->initialize(), StepFailure);
}

TEST_F(EngineTest, RanksThatShareABatchCountOnce) {
  config.ranks_per_batch = 2;
  EXPECT_EQ(global_batch(config, 4), 12);
}

}  // namespace
}  // namespace dstune::engine
