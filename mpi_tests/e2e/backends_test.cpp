// The same jobs on every backend: on the processor, and on a GPU where one answers.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "dstune/device/cuda.hpp"
#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

/// The parameter is the backend's name.
class BackendTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!is_cuda()) return;
    if (const std::string violation = cuda_unavailable_reason(); !violation.empty())
      GTEST_SKIP() << violation;
  }
  [[nodiscard]] static bool is_cuda() { return GetParam() == "cuda"; }

  /// The space on this backend, with one rank.
  Command command(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"--backend", GetParam()});
    options.emplace_back("space.json");
    return {.ranks = 1, .args = options, .limit_s = limit_s_};
  }
  [[nodiscard]] Json plan() {
    const Ended ended = job_.run(command({"--dry-run", "--format", "json"}));
    EXPECT_EQ(ended.exit_code, 0) << ended;
    return Json::parse(ended.out, nullptr, false);
  }

  Job job_;
  double limit_s_ = 200;
};

/// DSTUNE_GPU_JOB names a preset to train on a GPU instead of a small model.
std::optional<std::string> wanted_model() {
  const char* const name = std::getenv("DSTUNE_GPU_JOB");
  return name == nullptr || *name == '\0' ? std::nullopt : std::optional<std::string>(name);
}

class AnswerTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    Json space = transformer_space({1});
    space["bf16"] = {{"enabled", true}};
    space["train_micro_batch_size_per_gpu"] = {1, 4};
    // Processors show no more at more stages.
    space["zero_optimization"]["stage"] = is_cuda() ? Json{1, 2, 3} : Json{3};
    space["zero_optimization"]["offload_optimizer"] = {nullptr, {{"device", "cpu"}}};
    space["dstune"]["activation_recompute"] = {"none", "block"};
    space["dstune"]["target"] = "self";
    if (const auto model = wanted_model(); model && is_cuda()) {
      space["dstune"]["model"] = *model;
      space["dstune"]["sequence_length"] = 1024;
      space["dstune"]["trial_budget_s"] = 2;
      limit_s_ = 1800;
    }
    write_transformer(job_, space);
  }
};

TEST_P(AnswerTest, IsFoundAndTheMemoryIsThePlans) {
  const Ended ended = job_.run(command());
  expect_exit(job_, ended, 0);
  const auto metrics = all_metrics(job_);
  EXPECT_EQ(metrics.size(), is_cuda() ? 24U : 8U);
  for (const auto& [name, measured] : metrics) {
    EXPECT_EQ(measured["status"], "ok") << name << ": " << measured["reason"];
    const Json& peak = measured["peak_memory_bytes"];
    const Json& predicted = measured["predicted"];
    EXPECT_EQ(peak["total"], predicted["peak_memory_bytes"]) << name;
    EXPECT_EQ(peak["host"], predicted["host_memory_bytes"]) << name;
    // A small process on the host does as it pleases: memory_test.cpp has a large one.
    std::cout << name << ": process " << peak["process"] << " bytes, predicted "
              << predicted["process_memory_bytes"] << '\n';
    if (!is_cuda()) continue;
    // Nothing where a driver does not tell.
    const double gpu = peak.value("gpu", 0.0), expected = predicted.value("gpu_memory_bytes", 0.0);
    std::cout << name << ": GPU " << gpu << " bytes, predicted " << expected << '\n';
    EXPECT_NEAR(gpu, expected, 0.02 * expected) << name;
    const bool is_told = std::getenv("DSTUNE_EMULATED_GPUS") != nullptr;
    EXPECT_GE(gpu, is_told ? 1 : 0) << name;
  }
  const std::string winner = optimal_of(job_)["name"];
  EXPECT_TRUE(metrics.contains(winner));
  EXPECT_TRUE(job_.exists(results + "ds_config_optimal.json"));
}

/// Experiments one after the other, one of which does not get its memory.
class OutOfMemoryTest : public BackendTest {
 protected:
  /// In the order in which they run.
  void write_space(const std::vector<int>& micro_batches) {
    Json config = tiny_gpt2_config();
    config["n_embd"] = 256;
    config["n_positions"] = 256;
    Json space = transformer_space({1});
    space["bf16"] = {{"enabled", true}};
    space["train_micro_batch_size_per_gpu"] = micro_batches;
    space["zero_optimization"]["stage"] = 0;
    space["dstune"]["sequence_length"] = 256;
    space["dstune"]["target"] = "self";
    space["dstune"]["device_memory"] = 64 * gib;
    space["dstune"]["trial_budget_s"] = trial_budget_s;
    if (end_step_ > 0) space["autotuning"]["end_profile_step"] = end_step_;
    job_.write("config.json", config);
    job_.write("space.json", space);
    for (const int micro_batch : micro_batches) names_.push_back(short_name(0, micro_batch));
  }

  /// And the next one ran after it.
  void expect_only_failed(const Ended& ended, std::size_t number) {
    expect_exit(job_, ended, 0);
    auto metrics = all_metrics(job_);
    ASSERT_EQ(metrics.size(), names_.size());
    for (const std::string& name : names_) {
      const Json& measured = metrics[name];
      EXPECT_EQ(measured["status"], name == names_[number] ? "out_of_memory" : "ok")
          << name << ": " << measured["reason"];
    }
    EXPECT_LT(metrics[names_[number]]["finished_at"].get<std::string>(),
              metrics[names_[number + 1]]["started_at"].get<std::string>());
    EXPECT_NE(optimal_of(job_)["name"], names_[number]);
  }

  /// The plan takes so much of the device, and another so much less than is left.
  void expect_planned(std::size_t large, std::int64_t left_bytes) {
    Json planned = plan();
    for (const Json& one : planned["experiments"]) {
      const std::int64_t bytes = one["predicted"]["peak_memory_bytes"];
      if (one["name"] == names_[large]) {
        EXPECT_GT(bytes, left_bytes);
      } else {
        EXPECT_LT(bytes, left_bytes / 4);
      }
    }
  }

  static constexpr double trial_budget_s = 3;
  int end_step_ = 0;  ///< 0: as many steps as the interval wants
  std::vector<std::string> names_;
};

TEST_P(OutOfMemoryTest, InjectedIsAResultAndTheNextRuns) {
  write_space({2, 1});
  Command injected = command();
  injected.environment["DSTUNE_INJECT"] = "oom@0:" + names_[0];
  expect_only_failed(job_.run(injected), 0);
}

// Beyond the plan: the space says that there is more memory than the process is then given.
class MemoryOfTheMachineTest : public OutOfMemoryTest {
 protected:
  /// Until it has done so.
  template <class HasDone>
  static void await(Process& process, HasDone&& has_done) {
    while (process.is_running() && !has_done())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(process.is_running()) << process.wait();
  }
};

TEST_P(MemoryOfTheMachineTest, IsAResultWhereItLacksAndTheNextRuns) {
  if (is_cuda()) {
    // CUDA itself takes some hundred MiB of a GPU.
    const std::int64_t left_bytes = 2 * gib;
    // A GPU would be done with the first before another process has taken its memory.
    if (std::getenv("DSTUNE_EMULATED_GPUS") == nullptr) end_step_ = 10000;
    write_space({1, 512, 2});
    expect_planned(1, left_bytes);
    // Taken while the first one runs: what is missing from the start would be planned with.
    Process job = job_.start(command());
    const std::string journal = "autotuning_results/journal.jsonl";
    await(job, [&] {
      return job_.exists(journal) &&
             job_.read(journal).find(R"("kind":"started")") != std::string::npos;
    });
    Process holder = job_.start({.ranks = 0,
                                 .args = {std::to_string(left_bytes), "held"},
                                 .program = {DSTUNE_E2E_HOLDER},
                                 .limit_s = limit_s_});
    await(holder, [&] { return job_.exists("held"); });
    expect_only_failed(job.wait(), 1);
    return;
  }
  const std::int64_t left_bytes = gib;
  write_space({256, 1});
  expect_planned(0, left_bytes);
  if (std::string(DSTUNE_E2E_LIMITER).empty())
    GTEST_SKIP() << "sanitizers need more memory than is left";
  Command squeezed = command();
  squeezed.launcher = {DSTUNE_E2E_LIMITER, std::to_string(left_bytes)};
  expect_only_failed(job_.run(squeezed), 0);
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}
INSTANTIATE_TEST_SUITE_P(cpu, AnswerTest, testing::Values("cpu"), name_of);
INSTANTIATE_TEST_SUITE_P(cpu, OutOfMemoryTest, testing::Values("cpu"), name_of);
INSTANTIATE_TEST_SUITE_P(cpu, MemoryOfTheMachineTest, testing::Values("cpu"), name_of);
INSTANTIATE_TEST_SUITE_P(cuda, AnswerTest, testing::Values("cuda"), name_of);
INSTANTIATE_TEST_SUITE_P(cuda, OutOfMemoryTest, testing::Values("cuda"), name_of);
INSTANTIATE_TEST_SUITE_P(cuda, MemoryOfTheMachineTest, testing::Values("cuda"), name_of);

}  // namespace
}  // namespace dstune::e2e
