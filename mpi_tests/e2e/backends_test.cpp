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

/// By the name of the backend.
class BackendTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!is_cuda()) return;
    if (const std::string objection = cuda_objection(); !objection.empty())
      GTEST_SKIP() << objection;
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
    job_.write("config.json", tiny_gpt2_config());
    job_.write("space.json", space);
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
    const double process = peak["process"], expected = predicted["process_memory_bytes"];
    std::cout << name << ": process " << process << " bytes, predicted " << expected << '\n';
    // A small process on the host does as it pleases: memory_test.cpp has a large one.
    if (is_cuda()) {
      EXPECT_NEAR(process, expected, 0.02 * expected) << name;
    }
  }
  const std::string winner = job_.read_json(results + "optimal.json")["name"];
  EXPECT_TRUE(metrics.contains(winner));
  EXPECT_TRUE(job_.exists(results + "ds_config_optimal.json"));
}

/// Two experiments, the first of which does not get its memory.
class OutOfMemoryTest : public BackendTest {
 protected:
  void write_space(int large_micro_batch) {
    large_ = short_name(0, large_micro_batch);
    Json config = tiny_gpt2_config();
    config["n_embd"] = 256;
    config["n_positions"] = 256;
    Json space = transformer_space({1});
    space["bf16"] = {{"enabled", true}};
    space["train_micro_batch_size_per_gpu"] = {large_micro_batch, 1};
    space["zero_optimization"]["stage"] = 0;
    space["dstune"]["sequence_length"] = 256;
    space["dstune"]["target"] = "self";
    space["dstune"]["device_memory"] = 64 * gib;
    job_.write("config.json", config);
    job_.write("space.json", space);
  }

  void expect_only_large_failed(const Ended& ended) {
    expect_exit(job_, ended, 0);
    auto metrics = all_metrics(job_);
    ASSERT_EQ(metrics.size(), 2U);
    EXPECT_EQ(metrics[large_]["status"], "out_of_memory") << metrics[large_]["reason"];
    EXPECT_EQ(metrics[small_]["status"], "ok") << metrics[small_]["reason"];
    EXPECT_LT(metrics[large_]["finished_at"].get<std::string>(),
              metrics[small_]["started_at"].get<std::string>());
    EXPECT_EQ(job_.read_json(results + "optimal.json")["name"], small_);
  }

  std::string large_;
  const std::string small_ = short_name(0, 1);
};

TEST_P(OutOfMemoryTest, InjectedIsAResultAndTheNextRuns) {
  write_space(2);
  Command injected = command();
  injected.environment["DSTUNE_INJECT"] = "oom@0:" + large_;
  expect_only_large_failed(job_.run(injected));
}

// Beyond the plan: the space says that there is more memory than the process is then given.
TEST_P(OutOfMemoryTest, OfTheMachineIsAResultAndTheNextRuns) {
  // CUDA itself takes some hundred MiB of a GPU.
  const std::int64_t left_bytes = is_cuda() ? 2 * gib : gib;
  write_space(is_cuda() ? 512 : 256);
  Json planned = plan();
  for (const Json& one : planned["experiments"]) {
    const std::int64_t bytes = one["predicted"]["peak_memory_bytes"];
    if (one["name"] == large_) {
      EXPECT_GT(bytes, left_bytes);
    } else {
      EXPECT_LT(bytes, left_bytes / 4);
    }
  }
  Command squeezed = command();
  std::optional<Process> holder;
  if (is_cuda()) {
    holder.emplace(job_.start({.ranks = 0,
                               .args = {std::to_string(left_bytes), "held"},
                               .program = {DSTUNE_E2E_HOLDER},
                               .limit_s = limit_s_}));
    while (holder->is_running() && !job_.exists("held"))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(holder->is_running()) << holder->wait();
  } else {
    if (std::string(DSTUNE_E2E_LIMITER).empty())
      GTEST_SKIP() << "sanitizers need more memory than is left";
    squeezed.launcher = {DSTUNE_E2E_LIMITER, std::to_string(left_bytes)};
  }
  expect_only_large_failed(job_.run(squeezed));
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}
INSTANTIATE_TEST_SUITE_P(cpu, AnswerTest, testing::Values("cpu"), name_of);
INSTANTIATE_TEST_SUITE_P(cpu, OutOfMemoryTest, testing::Values("cpu"), name_of);
INSTANTIATE_TEST_SUITE_P(cuda, AnswerTest, testing::Values("cuda"), name_of);
INSTANTIATE_TEST_SUITE_P(cuda, OutOfMemoryTest, testing::Values("cuda"), name_of);

}  // namespace
}  // namespace dstune::e2e
