#include "dstune/space/deepspeed_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/file.hpp"
#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr double gib = 1 << 30;

DeepSpeedLog parse(const std::string& text) {
  json::Problems problems;
  DeepSpeedLog log = parse_deepspeed_log(text, "log.txt", problems);
  problems.check();
  return log;
}

std::string problem_in(const std::string& text) {
  json::Problems problems;
  parse_deepspeed_log(text, "log.txt", problems);
  return problems.empty() ? "" : problems.all().front().text();
}

TEST(DeepSpeedLog, ReadsTheLinesOfARealRun) {
  const DeepSpeedLog log = parse(read_file(DSTUNE_DEEPSPEED_LOG));
  // Its throughput timer starts with the third step; the run made nine.
  ASSERT_THAT(log.speeds, SizeIs(7));
  EXPECT_EQ(log.speeds.front().step, 3);
  EXPECT_EQ(log.speeds.back().step, 9);
  // The last step's breakdown is not printed: DeepSpeed leaves before.
  ASSERT_THAT(log.breakdowns, SizeIs(8));
  for (const auto& speed : log.speeds) {
    if (speed.step > 8) continue;
    // The batch of the run is 8. Both clocks see the same step, the breakdown's less of it.
    const double step_s = 8 / speed.samples_per_s;
    const double parts_s = log.breakdowns[static_cast<std::size_t>(speed.step - 1)].total_s();
    EXPECT_LT(parts_s, step_s * 1.02) << speed.step;
    EXPECT_GT(parts_s, step_s / 2) << speed.step;
  }
  EXPECT_GT(log.peak_memory_bytes.value_or(0), 0.05 * gib);
}

TEST(DeepSpeedLog, ReadsWhatOtherReleasesWrite) {
  const DeepSpeedLog log = parse(
      "[2024-01-02 03:04:05,678] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: 10.50 | "
      "bwd: 20.25 | bwd_inner: 15.00 | bwd_allreduce: 5.00 | step: 4.25\n"
      "MA 1.5 GB         Max_MA 2.25 GB         CA 3.0 GB         Max_CA 3 GB \n"
      "MA 1.5 GB         Max_MA 2.0 GB         CA 3.0 GB         Max_CA 3 GB \n"
      "time (ms) | fwd_microstep: 1.00 | bwd_microstep: 2.00 | step_microstep: 0.10\n"
      "a loss of 3.14\n"
      "cut off: CurrSamplesPerSec=12");
  ASSERT_THAT(log.breakdowns, SizeIs(1));
  EXPECT_THAT(log.breakdowns[0].forward_s, DoubleNear(0.0105, 1e-12));
  EXPECT_THAT(log.breakdowns[0].backward_s, DoubleNear(0.02025, 1e-12));
  EXPECT_THAT(log.breakdowns[0].update_s, DoubleNear(0.00425, 1e-12));
  EXPECT_EQ(log.peak_memory_bytes, static_cast<std::int64_t>(2.25 * gib));
  EXPECT_THAT(log.speeds, SizeIs(0));
}

TEST(DeepSpeedLog, NamesTheLineThatItCanNotRead) {
  EXPECT_THAT(problem_in("ok\n[Rank 0] time (ms) | fwd: 1.0 | bwd: x | step: 1\n"),
              HasSubstr("log.txt:2: a line of DeepSpeed without a number behind \"| bwd: \""));
  EXPECT_THAT(problem_in("global_step=4, CurrSamplesPerSec=nan, MaxMemAllocated=1GB\n"),
              HasSubstr("CurrSamplesPerSec="));
  EXPECT_THAT(problem_in("global_step=4, CurrSamplesPerSec=3.5, MaxMem\n"),
              HasSubstr("MaxMemAllocated="));
  EXPECT_EQ(problem_in("it rains\n"), "");
}

/// Folders of runs, and the members that they may belong to.
class DeepSpeedRunTest : public SpaceTest {
 protected:
  DeepSpeedRunTest() {
    std::filesystem::create_directories(folder_ / "verify/a");
    job_ = job(R"({"dstune": {"resources": {"num_gpus": [2, 4]}, "sequence_length": 64},
                   "train_micro_batch_size_per_gpu": [2, 4], "gradient_accumulation_steps": 2,
                   "zero_optimization": {"stage": [0, 2], "reduce_bucket_size": [1000, 2000]}})");
    const SearchSpace space(job_);
    for (const Member& member : space.members())
      if (!member.is_pruned) experiments_.push_back(space.experiment(member));
    write_in_a("ds_config.json", R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2, "steps_per_print": 1, "log_level": "info",
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e3},
        "autotuning": {"enabled": true, "start_profile_step": 3}})");
    write_in_a("metrics.json", R"({"latency": 4e6, "throughput": 4.0, "rank": 0})");
  }
  void write_in_a(const std::string& name, const std::string& text) {
    write("verify/a/" + name, text);
  }
  DeepSpeedRuns read() { return read_deepspeed_runs((folder_ / "verify").string(), job_); }
  static std::string problem_of(const std::function<void()>& read) {
    try {
      read();
    } catch (const InputError& error) {
      return error.problems().front().text();
    }
    return "none";
  }
  std::string problem() {
    return problem_of([&] { read(); });
  }
  std::string found_name(const DeepSpeedRun& run) {
    std::vector<const Experiment*> known;
    for (const Experiment& one : experiments_) known.push_back(&one);
    const auto found = find_experiment(run, known);
    return found ? experiments_[*found].name : "none";
  }

  JobSpec job_;
  std::vector<Experiment> experiments_;
};

TEST_F(DeepSpeedRunTest, ReadsAFolderAsDeepSpeedsTunerLeavesIt) {
  const DeepSpeedRuns found = read();
  ASSERT_THAT(found.runs, SizeIs(1));
  const DeepSpeedRun& run = found.runs.front();
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.group_size, 2);
  EXPECT_FALSE(run.shape);
  EXPECT_EQ(run.measurement.status, Status::ok);
  EXPECT_THAT(run.measurement.step_times_s, ElementsAre(DoubleNear(4, 1e-12)));
  EXPECT_EQ(found_name(run), "z2_tmbspg4_gas2_rbs2000_ng2");
}

TEST_F(DeepSpeedRunTest, TheLogHasMoreThanOneStep) {
  std::string log;
  for (int step = 3; step <= 8; ++step)
    log += "[timer.py] epoch=0/micro_step=" + std::to_string(2 * step) +
           "/global_step=" + std::to_string(step) + ", RunningAvgSamplesPerSec=1, " +
           "CurrSamplesPerSec=" + std::to_string(step) + ".0, MemAllocated=1.0GB, " +
           "MaxMemAllocated=1.5GB\n";
  write_in_a("log.txt", log);
  const Measurement measurement = read().runs.front().measurement;
  // Step 4 counts operations, and what comes before is warm-up.
  EXPECT_THAT(measurement.step_times_s, ElementsAre(16 / 5.0, 16 / 6.0, 16 / 7.0, 16 / 8.0));
  EXPECT_EQ(measurement.peak_memory.total_bytes, static_cast<std::int64_t>(1.5 * gib));
}

TEST_F(DeepSpeedRunTest, AUsersLogSpeaksForItself) {
  std::string log =
      "[INFO] [config.py:1013:print]   world_size ................... 2\n"
      "[INFO] [config.py:999:print_user_config]   json = {\n"
      "    \"train_micro_batch_size_per_gpu\": 4, \n    \"gradient_accumulation_steps\": 2, \n"
      "    \"zero_optimization\": {\n        \"stage\": 0\n    }\n}\n";
  for (int step = 1; step <= 5; ++step)
    log += "[Rank 0] time (ms) | fwd: 100.00 | bwd: 200.00 | step: " + std::to_string(step * 100) +
           ".00\n";
  const std::string path = write("own.log", log);
  const DeepSpeedRun run = read_deepspeed_run(path, job_);
  EXPECT_EQ(run.group_size, 2);
  EXPECT_FALSE(run.shape);
  EXPECT_THAT(run.measurement.step_times_s,
              ElementsAre(DoubleNear(0.7, 1e-9), DoubleNear(0.8, 1e-9)));
  EXPECT_THAT(found_name(run), testing::StartsWith("z0_"));
  const std::string real = write("real.log", read_file(DSTUNE_DEEPSPEED_LOG));
  const auto problem_in_file = [&](const std::string& file) {
    return problem_of([&] { read_deepspeed_run(file, job_); });
  };
  EXPECT_THAT(problem_in_file(real), HasSubstr("there is no ds_config.json"));
  EXPECT_THAT(problem_in_file(write("short.log", log.substr(0, log.find("[Rank 0]")))),
              HasSubstr("no optimizer step after the first 3"));
  log.replace(log.find("\"stage\": 0"), 10, "\"stage\": 9");
  EXPECT_THAT(problem_in_file(write("wrong.log", log)),
              HasSubstr("wrong.log:6: /zero_optimization/stage"));
  EXPECT_THAT(problem_in_file((folder_ / "none.log").string()), HasSubstr("none.log"));
}

TEST_F(DeepSpeedRunTest, AMetricsFileHasItsConfigurationBesideIt) {
  const DeepSpeedRun run = read_deepspeed_run((folder_ / "verify/a/metrics.json").string(), job_);
  EXPECT_THAT(run.measurement.step_times_s, ElementsAre(DoubleNear(4, 1e-12)));
  EXPECT_EQ(run.path, (folder_ / "verify/a/metrics.json").string());
}

TEST_F(DeepSpeedRunTest, AFolderIsNoFileOfARun) {
  const std::string folder = (folder_ / "verify/a").string();
  try {
    (void)read_deepspeed_run(folder, job_);
    ADD_FAILURE() << "a folder is read";
  } catch (const InputError& error) {
    ASSERT_THAT(error.problems(), SizeIs(1)) << "and nothing is said of its parent";
    EXPECT_THAT(error.problems().front().text(),
                testing::StartsWith(folder + ": it is a folder: name the metrics.json"));
  }
}

TEST_F(DeepSpeedRunTest, ExpJsonSaysTheGroup) {
  write_in_a("exp.json", R"({"name": "b", "num_gpus": 1, "num_nodes": 2, "recompute": "none"})");
  const DeepSpeedRun run = read().runs.front();
  EXPECT_EQ(run.name, "b");
  EXPECT_EQ(run.shape, (GroupShape{1, 2}));
  EXPECT_EQ(run.recompute, Recompute::none);
  EXPECT_EQ(found_name(run), "none");
  write_in_a("exp.json", R"({"num_gpus": 4, "num_nodes": 1})");
  EXPECT_THAT(problem(), HasSubstr("ds_config.json:1: train_batch_size 16 is not"));
}

TEST_F(DeepSpeedRunTest, WhatDoesNothingAtItsStageMakesNoDifference) {
  write_in_a("ds_config.json", R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4,
      "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 0, "reduce_bucket_size": 77,
      "stage3_prefetch_bucket_size": 5}})");
  EXPECT_THAT(found_name(read().runs.front()), testing::StartsWith("z0_"));
}

TEST_F(DeepSpeedRunTest, SaysHowARunEnded) {
  std::filesystem::remove(folder_ / "verify/a/metrics.json");
  write_in_a("status.json", R"({"status": "out_of_memory", "exit_code": 1})");
  const Measurement measurement = read().runs.front().measurement;
  EXPECT_EQ(measurement.status, Status::out_of_memory);
  EXPECT_THAT(measurement.reason, HasSubstr("ran out of memory in DeepSpeed"));
  write_in_a("status.json", R"({"status": "ok", "exit_code": 0})");
  EXPECT_THAT(problem(), HasSubstr("status.json:1: /status: it is said to be ok"));
  write_in_a("status.json", R"({"status": "fine"})");
  EXPECT_THAT(problem(), HasSubstr("\"fine\" is no end of a run"));
}

TEST_F(DeepSpeedRunTest, SkipsWhatHasNoResultYet) {
  std::filesystem::create_directory(folder_ / "verify/b");
  write("verify/b/ds_config.json", "{}");
  const DeepSpeedRuns found = read();
  EXPECT_THAT(found.runs, SizeIs(1));
  ASSERT_THAT(found.skipped, SizeIs(1));
  EXPECT_THAT(found.skipped.front(), HasSubstr("verify/b"));
}

TEST_F(DeepSpeedRunTest, NamesWhatIsWrong) {
  write_in_a("metrics.json", R"({"throughput": 0})");
  EXPECT_THAT(problem(), HasSubstr("metrics.json:1: /throughput"));
  write_in_a("metrics.json", R"({"latency": 1})");
  EXPECT_THAT(problem(), HasSubstr("\"throughput\" is missing"));
  write_in_a("metrics.json", R"({"throughput": 1, "throughput": 2})");
  EXPECT_THAT(problem(), HasSubstr("metrics.json:1"));
  write_in_a("metrics.json", R"({"throughput": 1})");
  write_in_a("ds_config.json", R"({"train_micro_batch_size_per_gpu": 4})");
  EXPECT_THAT(problem(), HasSubstr("the group's size is not known"));
  write_in_a("ds_config.json", "{\n\"zero_optimization\": {\"stage\": 7}}");
  EXPECT_THAT(problem(), HasSubstr("ds_config.json:2: /zero_optimization/stage"));
  std::filesystem::remove(folder_ / "verify/a/ds_config.json");
  EXPECT_THAT(problem(), HasSubstr("there is no ds_config.json"));
}

}  // namespace
}  // namespace dstune
