// DeepSpeed's own engine in the ranks of the job: the user's script, a function of it, random
// tokens; and what goes wrong in Python costs an experiment.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// People write it like this, but for what certain sizes do.
constexpr const char* script = R"(import argparse
import ctypes
import os
import time

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
deepspeed.init_distributed()
torch.manual_seed(0)
rank = torch.distributed.get_rank()
if args.batch == 3:
    with open("left.txt", "w") as left:
        left.write("left by the script")
    raise ValueError("size three is refused by all")
model = torch.nn.Linear(16, 16)
data = torch.utils.data.TensorDataset(torch.randn(4096, 16))
engine, _, loader, _ = deepspeed.initialize(
    args=args, model=model, model_parameters=model.parameters(), training_data=data)
for step, (x,) in enumerate(loader):
    if args.batch == 2 and step == 4 and rank == 1:
        raise RuntimeError("size two fails on one rank")
    if args.batch == 5 and step == 4 and rank == 0:
        raise MemoryError
    if args.batch == 6 and rank == 1:
        while True:
            time.sleep(0.01)
    if args.batch == 7 and rank == 1:
        ctypes.CDLL(None).kill(os.getpid(), 9)  # as the kernel does: os.kill is refused
    if args.batch == 8 and rank == 1:
        ctypes.PyDLL(None).sleep(3600)  # as native code that never gives Python back
    loss = engine(x).square().mean()
    engine.backward(loss)
    engine.step()
    print("printed by the script")
)";

constexpr const char* functions = R"(import torch


def make(ds_config, seed):
    torch.manual_seed(seed)

    def batch(micro_batch, seed):
        return torch.randn(micro_batch, 16, generator=torch.Generator().manual_seed(seed))

    return torch.nn.Linear(16, 16), batch, lambda model, x: model(x).square().mean()
)";

class EngineJobTest : public JobTest {
 protected:
  void SetUp() override {
    python_ = engine_python();
    if (python_.empty()) GTEST_SKIP() << no_engine_python;
  }

  Json space(const Json& workload, const std::vector<int>& micro_batches,
             const std::vector<int>& num_gpus = {2}) {
    Json space = synthetic_space(num_gpus, micro_batches);
    space["dstune"]["trial_budget_s"] = 0.5;
    space["dstune"]["workload"] = {{"type", "deepspeed"}, {"python", python_}};
    space["dstune"]["workload"].update(workload);
    space["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"torch_adam", true}}}};
    return space;
  }
  Json script_space(const std::vector<int>& micro_batches, const std::vector<int>& num_gpus = {2}) {
    job_.write_text("train.py", script);
    Json written = space(Json::object(), micro_batches, num_gpus);
    written["dstune"]["training_command"] = "deepspeed train.py --batch 1";
    written["autotuning"]["arg_mappings"] = {{"train_micro_batch_size_per_gpu", "--batch"}};
    return written;
  }
  /// An environment whose interpreter runs under a filter that kills whoever starts a process.
  std::string filtered_python() {
    namespace fs = std::filesystem;
    const fs::path environment = job_.folder() / "filtered";
    fs::create_directories(environment / "bin");
    const std::string python = fs::is_directory(python_) ? python_ + "/bin/python" : python_;
    // There the release of DeepSpeed is read.
    fs::create_directory_symlink(fs::path(python).parent_path().parent_path() / "lib",
                                 environment / "lib");
    job_.write_text("filtered/bin/python",
                    "#!/bin/sh\nexec " DSTUNE_E2E_LAUNCHER " " + python + " \"$@\"\n");
    fs::permissions(environment / "bin/python", fs::perms::owner_all);
    return "filtered";
  }
  Ended run(const Json& space, const std::vector<std::string>& flags = {}, int ranks = 2,
            const std::vector<std::string>& launcher = {}) {
    job_.write("space.json", space);
    std::vector<std::string> args = flags;
    args.emplace_back("space.json");
    return job_.run({.ranks = ranks, .args = args, .launcher = launcher, .limit_s = 400});
  }
  /// Python ended the experiment.
  void expect_failed(const std::string& name, const std::string& status, const std::string& words,
                     const std::string& last_line) {
    auto metrics = all_metrics(job_);
    EXPECT_EQ(metrics[name]["status"], status) << name;
    EXPECT_THAT(metrics[name]["reason"].get<std::string>(), HasSubstr(words))
        << metrics[name]["reason"];
    if (last_line.empty()) return;
    const std::string text = job_.read(results + name + "/traceback.txt");
    EXPECT_THAT(text, HasSubstr("train.py"));
    EXPECT_TRUE(text.ends_with(last_line + "\n")) << text;
  }

  std::string python_;
};

/// In one job, since each pays for its imports.
TEST_F(EngineJobTest, TheUsersScriptRunsWithoutAProcessAndFailuresCostTheirExperiment) {
  Json written = script_space({1, 2, 3, 5, 6, 4});
  written["dstune"]["workload"]["python"] = filtered_python();
  const Ended ended = run(written, {"--trial-timeout", "20s"});
  expect_exit(job_, ended, 0);
  auto metrics = all_metrics(job_);
  ASSERT_EQ(metrics.size(), 6);
  for (const int size : {1, 4}) {
    const Json& good = metrics[short_name(0, size)];
    EXPECT_EQ(good["status"], "ok") << good["reason"];
    EXPECT_EQ(good["instrument"], "engine");
    EXPECT_GE(good["losses"].size(), 5);
    EXPECT_GT(good["peak_memory_bytes"]["process"], 0);
  }
  expect_failed(short_name(0, 2), "failed", "size two fails on one rank",
                "RuntimeError: size two fails on one rank");
  expect_failed(short_name(0, 3), "failed", "size three is refused by all",
                "ValueError: size three is refused by all");
  EXPECT_EQ(count_of(metrics[short_name(0, 3)]["notes"].dump(), "left.txt"), 1);
  EXPECT_EQ(count_of(job_.read(results + "summary.txt"), "left.txt"), 1);
  expect_failed(short_name(0, 5), "out_of_memory", "rank 0", "MemoryError");
  expect_failed(short_name(0, 6), "timed_out", "--trial-timeout", "");
  const Json optimal = optimal_of(job_);
  EXPECT_EQ(optimal["label"], "verified");
  EXPECT_FALSE(job_.read_json(results + "environment.json")["python"]["versions"]["torch"].empty());
  EXPECT_EQ(count_of(ended.out, "printed by the script"), 0);

  // A script that has changed is another one: nothing is known of it.
  const std::size_t before = journal(job_).size();
  written["train_micro_batch_size_per_gpu"] = {1};
  job_.write_text("train.py", std::string(script) + "# changed\n");
  const Ended again = run(written);
  expect_exit(job_, again, 0);
  EXPECT_EQ(names_of(journal(job_), "started", before).size(), 1);
}

/// A script whose runs say nothing of the configuration that it was to run.
constexpr const char* careless_script = R"(import argparse
import os
import pathlib

import deepspeed
import torch

state = pathlib.Path(__file__).with_name("state.txt")
parser = argparse.ArgumentParser()
parser.add_argument("--case", required=True)
parser.add_argument("--size", type=int, default=1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
deepspeed.init_distributed()
scale = 1.0
if args.case == "keeps":
    scale = float(state.read_text()) if state.exists() else 1.0
    torch.distributed.barrier()
    state.write_text(str(2 * scale))
if args.case == "writes":
    assert os.listdir() == [], os.listdir()
    with open("left.txt", "w") as left:
        left.write("left by the script")
model = torch.nn.Linear(16, 16)
if args.case == "ignores":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        model(torch.randn(args.size, 16)).square().mean().backward()
        optimizer.step()
        if args.size > 0:
            raise SystemExit
engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
batch = 3 if args.case == "batch" else engine.train_micro_batch_size_per_gpu()
while True:
    loss = engine(torch.randn(batch, 16)).square().mean() * scale
    engine.backward(loss)
    engine.step()
)";

TEST_F(EngineJobTest, WhatAScriptDoesOtherwiseIsNamed) {
  job_.write_text("train.py", careless_script);
  Json written = space(Json::object(), {2});
  const auto result_of = [&](const std::string& words, bool scratch = false) {
    written["dstune"]["training_command"] = "deepspeed train.py " + words;
    if (scratch) written["dstune"]["workload"]["scratch"] = true;
    std::filesystem::remove_all(job_.folder() / results);
    run(written);
    return all_metrics(job_).begin()->second;
  };
  const auto expect_told = [&](const std::string& words) {
    EXPECT_EQ(count_of(job_.read(results + "summary.txt"), words), 1)
        << words << '\n'
        << job_.read(results + "summary.txt");
  };
  const std::string batch = "is 3, and train_micro_batch_size_per_gpu is 2";
  Json metrics = result_of("--case batch");
  EXPECT_EQ(metrics["status"], "failed");
  EXPECT_EQ(count_of(metrics["reason"], batch), 1) << metrics["reason"];
  expect_told(batch);

  metrics = result_of("--case ignores");
  EXPECT_EQ(metrics["status"], "failed");
  EXPECT_EQ(count_of(metrics["reason"], "sys.exit"), 1) << metrics["reason"];
  expect_told("sys.exit");

  // Its losses double from run to run, and two that are as fast are run again.
  written["gradient_clipping"] = {0.5, 1.0};
  result_of("--case keeps");
  written.erase("gradient_clipping");
  std::string notes;
  for (const auto& [name, one] : all_metrics(job_)) {
    EXPECT_EQ(one["status"], "ok") << name << one["reason"];
    if (one.contains("notes")) notes += one["notes"].dump();
  }
  EXPECT_GE(count_of(notes, "not re-runnable"), 1) << notes;
  EXPECT_EQ(count_of(notes, "state.txt"), 1) << notes;
  EXPECT_GE(count_of(job_.read(results + "summary.txt"), "not re-runnable"), 1);
  expect_told("state.txt");

  const auto before = std::filesystem::directory_iterator(job_.folder());
  const auto num_before = std::distance(before, {});
  metrics = result_of("--case writes", true);
  EXPECT_EQ(metrics["status"], "ok") << metrics["reason"];
  EXPECT_FALSE(job_.exists("left.txt"));
  EXPECT_EQ(count_of(job_.read(results + "summary.txt"), "left.txt"), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(job_.folder()), {}), num_before);
}

TEST_F(EngineJobTest, OperatorsThatAreNotBuiltAreKnownBeforeAnythingRuns) {
  Json written = script_space({1});
  // An operator that no environment here has built: Adagrad on the host.
  const Command command{
      .ranks = 2,
      .args = {"space.json"},
      .environment = {{"TORCH_EXTENSIONS_DIR", (job_.folder() / "none").string()}},
      .limit_s = 400};
  const Json offload = {{"device", "cpu"}};
  written["optimizer"] = {{"type", "Adagrad"}, {"params", {{"lr", 1e-3}}}};
  written["zero_optimization"] = {{"stage", 1}, {"offload_optimizer", offload}};
  job_.write("space.json", written);
  const Ended refused = job_.run(command);
  expect_exit(job_, refused, bad_input);
  EXPECT_EQ(count_of(refused.err, "not built: cpu_adagrad; build before: "), 1) << refused;
  EXPECT_FALSE(job_.exists("autotuning_exps")) << "no experiment began";

  written["zero_optimization"]["offload_optimizer"] = {offload, nullptr};
  job_.write("space.json", written);
  const Ended ended = job_.run(command);
  expect_exit(job_, ended, 0);
  EXPECT_EQ(names_of(journal(job_), "started").size(), 1);
  const std::string summary = job_.read(results + "summary.txt");
  EXPECT_EQ(count_of(summary, "build before: "), 1) << summary;
  EXPECT_EQ(count_of(summary, "1 pruned ("), 1) << summary;
}

TEST_F(EngineJobTest, AJobThatIsTerminatedGoesOnWithTheSameCommand) {
  Json written = script_space({1, 4, 8, 9, 10, 11});
  written["dstune"]["trial_budget_s"] = 1;
  job_.write("space.json", written);
  const Command command{.ranks = 2, .args = {"space.json"}, .limit_s = 400};
  Process process = job_.start(command);
  wait_for_finished(process, 2);
  process.signal(SIGTERM);
  const Ended stopped = process.wait();
  EXPECT_FALSE(stopped.is_late) << stopped;
  EXPECT_EQ(exit_status_of(job_)["exit_code"], stopped_early);
  const auto metrics = all_metrics(job_);
  EXPECT_TRUE(metrics.contains(optimal_of(job_)["name"]));
  EXPECT_TRUE(job_.exists(results + "summary.txt"));
  const std::vector<std::string> finished = names_of(journal(job_), "finished");
  EXPECT_LT(finished.size(), 6);

  const std::size_t before = journal(job_).size();
  expect_exit(job_, job_.run(command), 0);
  for (const std::string& name : names_of(journal(job_), "started", before))
    EXPECT_EQ(std::ranges::count(finished, name), 0) << name << " was known";
  EXPECT_EQ(names_of(journal(job_), "finished").size(), 6);
}

TEST_F(EngineJobTest, AFunctionTrainsInTwoGroupsAtOnce) {
  job_.write_text("mine.py", functions);
  Json written = space({{"script", "mine.py"}, {"function", "make"}}, {1, 4, 16}, {1});
  written["dstune"]["trial_budget_s"] = 2;
  const Ended ended = run(written, {"--format", "json"});
  const auto metrics = expect_all_ok(job_, ended, 3);
  bool has_overlapped = false;
  for (const auto& [name, one] : metrics)
    for (const auto& [other_name, other] : metrics)
      has_overlapped = has_overlapped || (name != other_name && is_overlapping(one, other));
  EXPECT_TRUE(has_overlapped);
  expect_no_rank_used_twice(metrics);
  EXPECT_EQ(Json::parse(ended.out)["best"]["label"], "verified") << "stdout is the result alone";
}

TEST_F(EngineJobTest, RandomTokensTrainAModelAndKeysOfTheEngineRun) {
  job_.write("config.json", tiny_gpt2_config());
  Json written = space(Json::object(), {2});
  written["dstune"]["model"] = {{"hf_config", "config.json"}};
  written["dstune"]["sequence_length"] = 16;
  written["zero_optimization"]["stage"] = {1, 3};
  written["torch_autocast"] = {{"enabled", true}, {"dtype", "bfloat16"}};
  expect_all_ok(job_, run(written), 2);
  EXPECT_EQ(optimal_of(job_)["label"], "engine");
}

TEST_F(EngineJobTest, AKilledRankCostsItsExperiment) {
  if (recovery_words().empty()) GTEST_SKIP() << "this launcher has no word for recovery";
  run(script_space({7, 4}, {1, 2}), {}, 3, recovery_words());
  auto metrics = all_metrics(job_);
  int num_ok = 0;
  for (const auto& [name, one] : metrics) {
    num_ok += one["status"] == "ok" ? 1 : 0;
    if (one["status"] == "ok" || one["group"]["world_ranks"].size() == 1) continue;
    const std::string reason = one["reason"];
    EXPECT_THAT(reason, HasSubstr(" died")) << name << ": " << reason;
  }
  EXPECT_GE(num_ok, 2) << "size 4, in groups of 1 and 2";
}

TEST_F(EngineJobTest, AScriptThatKeepsPythonCostsItsRank) {
  const Ended ended = run(script_space({8, 4}), {"--trial-timeout", "15s"}, 3);
  expect_exit(job_, ended, 0);
  auto metrics = all_metrics(job_);
  EXPECT_EQ(metrics[short_name(0, 4)]["status"], "ok") << metrics[short_name(0, 4)]["reason"];
  expect_failed(short_name(0, 8), "timed_out", "no answer from Python on rank", "");
  EXPECT_EQ(names_of(journal(job_), "lost").size(), 0) << "it is not tried on other ranks";
}

TEST_F(EngineJobTest, AReleaseThatIsNotPythonsIsRefused) {
  Json written = script_space({1});
  written["dstune"]["deepspeed_version"] = "0.17.6";
  job_.write("space.json", written);
  expect_refused(job_, {.ranks = 2, .args = {"space.json"}, .limit_s = 400}, bad_input,
                 {"its Python has DeepSpeed"});
}

/// The folder of packages of an environment; empty: it has none.
std::string packages_of(const std::string& python) {
  namespace fs = std::filesystem;
  const fs::path prefix =
      fs::is_directory(python) ? fs::path(python) : fs::path(python).parent_path().parent_path();
  for (const auto& entry : fs::directory_iterator(prefix / "lib"))
    if (fs::is_directory(entry.path() / "site-packages/torch"))
      return (entry.path() / "site-packages").string();
  return "";
}

/// DSTUNE_ENGINE_PYTHON_DEBIAN: of the same minor version as the environment, whose packages it
/// sees by PYTHONPATH. The space names no Python: the path does.
TEST_F(EngineJobTest, ASystemsOwnPythonRuns) {
  const char* const system = std::getenv("DSTUNE_ENGINE_PYTHON_DEBIAN");
  if (system == nullptr || *system == '\0')
    GTEST_SKIP() << "DSTUNE_ENGINE_PYTHON_DEBIAN names no interpreter of a system";
  Json written = script_space({1});
  written["dstune"]["workload"].erase("python");
  job_.write("space.json", written);
  job_.write_text("train.py", "import sys\n\nassert sys.prefix == sys.base_prefix, sys.prefix\n" +
                                  std::string(script));
  const std::filesystem::path folder = std::filesystem::path(system).parent_path();
  const Ended ended = job_.run({.ranks = 2,
                                .args = {"space.json"},
                                .environment = {{"VIRTUAL_ENV", ""},
                                                {"CONDA_PREFIX", ""},
                                                {"PATH", folder.string() + ":/usr/bin:/bin"},
                                                {"PYTHONPATH", packages_of(python_)}},
                                .limit_s = 400});
  expect_all_ok(job_, ended, 1);
}

}  // namespace
}  // namespace dstune::e2e
