// From an answer to its check in DeepSpeed: the scripts that are written beside it, with a stand-in
// for DeepSpeed, and what becomes of the answer with what they leave.
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// Writes what DeepSpeed's autotuning writes: the speed that the file `speeds` has for the
/// micro-batch size, in samples/s. Without one there it runs out of memory.
constexpr const char* stand_in = R"BASH(#!/bin/bash
config=${@: -1}
value() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,}\"]*\).*/\1/p" "$config"; }
micro=$(value train_micro_batch_size_per_gpu)
speed=$(sed -n "s/^$micro //p" speeds)
echo "deepspeed $*" >>calls
if [[ -z $speed ]]; then
  echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
  exit 1
fi
[[ $speed == broken ]] && exit 5
echo "{\"fwd\": 1.0, \"bwd\": 2.0, \"step\": 1.0, \"latency\": 4.0, \"FLOPS_per_gpu\": 1e9, \"throughput\": $speed, \"rank\": 0}" >"$(value metric_path)"
)BASH";

/// Micro-batch sizes 1 to 4; the smaller, the faster.
class VerifyTest : public JobTest {
 protected:
  VerifyTest() {
    Json space = replay_space({1}, {4, 3, 2, 1});
    space["dstune"]["training_command"] = "train.py --deepspeed_config $CONFIG";
    job_.write("space.json", space);
    Json table;
    for (const int micro : {1, 2, 3, 4})
      table[short_name(0, micro)] = {{"step_time_s", 0.1 * micro * micro}};
    job_.write("table.json", table);
    job_.write_text("bin/deepspeed", stand_in);
    chmod((job_.folder() / "bin/deepspeed").c_str(), 0755);
  }

  Ended bash(const std::vector<std::string>& words,
             std::map<std::string, std::string> environment = {}) {
    environment["PATH"] = (job_.folder() / "bin").string() + ":" + std::getenv("PATH");
    environment["SLURM_SUBMIT_DIR"] = environment["PBS_O_WORKDIR"] = job_.folder().string();
    std::vector<std::string> program = {"bash"};
    program.insert(program.end(), words.begin(), words.end());
    return job_.run({.ranks = 0, .environment = environment, .program = program});
  }
};

TEST_F(VerifyTest, TheScriptsRunTheBestAndTheUsersOwn) {
  expect_exit(job_, run(), 0);
  job_.write_text("speeds", "1 30\n2 broken\n4 10\n");
  for (const char* script : {"verify.sbatch", "verify.pbs"}) {
    const std::string path = results + script;
    const Ended checked = bash({"-n", path});
    EXPECT_EQ(checked.exit_code, 0) << checked;
    std::filesystem::remove_all(job_.folder() / results / "verify");
    job_.write_text("calls", "");
    const Ended ended = bash({path});
    EXPECT_EQ(ended.exit_code, 1) << "two runs have no result\n" << ended;
    const std::string calls = job_.read("calls");
    for (const int micro : {1, 2, 3, 4}) {
      const std::string folder = results + "verify/" + short_name(0, micro) + "/";
      const std::string config = (job_.folder() / (folder + "ds_config.json")).string();
      EXPECT_EQ(count_of(calls,
                         "deepspeed --num_nodes 1 --num_gpus 1 train.py "
                         "--deepspeed_config " +
                             config + "\n"),
                1)
          << calls;
      EXPECT_EQ(job_.exists(folder + "metrics.json"), micro == 1 || micro == 4);
      EXPECT_EQ(job_.read_json(folder + "exp.json")["num_gpus"], 1);
      EXPECT_EQ(job_.read_json(folder + "ds_config.json")["train_micro_batch_size_per_gpu"], micro);
    }
    const auto status = [&](int micro) {
      return job_.read_json(results + "verify/" + short_name(0, micro) + "/status.json");
    };
    EXPECT_EQ(status(1), (Json{{"status", "ok"}, {"exit_code", 0}}));
    EXPECT_EQ(status(2), (Json{{"status", "failed"}, {"exit_code", 5}}));
    EXPECT_EQ(status(3), (Json{{"status", "out_of_memory"}, {"exit_code", 1}}));
    EXPECT_EQ(count_of(ended.out, "CUDA out of memory"), 1) << ended;

    // A run that has a result is not run again.
    job_.write_text("calls", "");
    bash({path});
    EXPECT_EQ(count_of(job_.read("calls"), "\n"), 2);
  }
}

TEST_F(VerifyTest, WhatDeepSpeedSaidDecides) {
  expect_exit(job_, run(), 0);
  EXPECT_EQ(optimal_of(job_)["label"], "proxy");
  job_.write_text("speeds", "1 30\n2 40\n4 10\n");
  bash({results + "verify.sbatch"});
  const std::size_t num_before = names_of(journal(job_), "finished").size();
  const Ended imported = run({"--import", results + "verify"});
  expect_exit(job_, imported, 0);
  EXPECT_EQ(names_of(journal(job_), "finished").size(), num_before) << "nothing is measured again";
  const auto expect_verified = [&](const Ended& ended) {
    const Json optimal = optimal_of(job_);
    EXPECT_EQ(optimal["name"], short_name(0, 2));
    EXPECT_EQ(optimal["label"], "verified");
    EXPECT_NEAR(optimal["value"].get<double>(), 5, 0.02);
    EXPECT_NEAR(optimal["verified"]["value"].get<double>(), 40, 1e-9);
    EXPECT_EQ(job_.read_json(results + "ds_config_optimal.json")["train_micro_batch_size_per_gpu"],
              2);
    EXPECT_THAT(ended.out, HasSubstr("label: verified")) << ended;
    EXPECT_THAT(ended.out, HasSubstr("DeepSpeed itself reached 40 samples/s with it, and 30 with " +
                                     short_name(0, 1)))
        << ended;
    auto table = results_table(job_);
    EXPECT_EQ(table[short_name(0, 3)]["status"], "infeasible");
    EXPECT_EQ(table[short_name(0, 3)]["verified_status"], "out_of_memory");
    EXPECT_EQ(table[short_name(0, 4)]["verified_value"], "10");
  };
  expect_verified(imported);
  // The journal keeps it.
  const Ended resumed = run();
  expect_exit(job_, resumed, 0);
  expect_verified(resumed);
}

TEST_F(VerifyTest, WhatRanOutOfMemoryThereIsNotTheAnswer) {
  expect_exit(job_, run(), 0);
  job_.write_text("speeds", "3 5\n4 10\n");
  bash({results + "verify.pbs"});
  const Ended imported = run({"--import", results + "verify", "--format", "json"});
  expect_exit(job_, imported, 0);
  const Json summary = printed(imported);
  EXPECT_EQ(summary["best"]["name"], short_name(0, 4)) << imported;
  EXPECT_EQ(summary["best"]["label"], "verified");
  EXPECT_EQ(summary["counts"]["infeasible"], 2);
}

TEST_F(VerifyTest, DamagedResultsTouchNothing) {
  expect_exit(job_, run(), 0);
  job_.write_text("speeds", "1 30\n2 20\n3 15\n4 10\n");
  bash({results + "verify.sbatch"});
  const std::string folder = results + "verify/" + short_name(0, 2) + "/";
  const auto expect_damaged = [&](const std::string& said) {
    expect_refused(job_, command({"--import", results + "verify"}), bad_input, {said});
  };
  job_.write_text(folder + "metrics.json", "{\n  \"throughput\": ");
  expect_damaged("metrics.json:2");
  job_.write_text(folder + "metrics.json", "{\n  \"throughput\": -1}");
  expect_damaged("metrics.json:2: /throughput");
  job_.write_text(folder + "metrics.json", job_.read(results + short_name(0, 1) + "/metrics.json"));
  expect_damaged("dstune-mpi measured this, not DeepSpeed");
  std::filesystem::remove_all(job_.folder() / results / "verify");
  expect_damaged("can not be listed");
  std::filesystem::create_directory(job_.folder() / results / "verify");
  expect_damaged("no folder in it has a result");
}

TEST_F(VerifyTest, TimesAreFittedToTheUsersOwnRuns) {
  std::string log =
      "[INFO] [config.py:1013:print]   world_size ................... 1\n"
      "[INFO] [config.py:999:print_user_config]   json = {\n"
      "    \"train_micro_batch_size_per_gpu\": 4, \n    \"gradient_accumulation_steps\": 1\n}\n";
  for (int step = 0; step < 6; ++step)
    log += "[Rank 0] time (ms) | fwd: 1000.00 | bwd: 2000.00 | step: 200.00\n";
  job_.write_text("own.log", log);
  const Ended ended = run({"--calibrate", "own.log"});
  expect_exit(job_, ended, 0);
  // 1.6 s here, 3.2 s there.
  const Json optimal = optimal_of(job_);
  EXPECT_EQ(optimal["name"], short_name(0, 1));
  EXPECT_EQ(optimal["label"], "calibrated");
  EXPECT_NEAR(optimal["calibration"]["scale"].get<double>(), 2, 1e-6);
  EXPECT_NEAR(optimal["value"].get<double>(), 5, 0.02);
  EXPECT_THAT(ended.out, HasSubstr("calibrated: measured times x 2")) << ended;
  const Json metrics = job_.read_json(results + short_name(0, 1) + "/metrics.json");
  EXPECT_NEAR(metrics["throughput"].get<double>(), 10, 1e-6);

  job_.write_text("own.log", log.substr(0, log.size() - 10) + "\n");
  expect_refused(job_, command({"--calibrate", "own.log"}), bad_input, {"own.log:11"});
}

TEST_F(VerifyTest, ARunThatHangsIsEnded) {
  expect_exit(job_, run(), 0);
  job_.write_text("bin/deepspeed", "#!/bin/bash\nsleep 100\n");
  const Ended ended = bash({results + "verify.sbatch"}, {{"RUN_LIMIT", "0.2"}});
  EXPECT_EQ(ended.exit_code, 1) << ended;
  const std::string status = results + "verify/" + short_name(0, 1) + "/status.json";
  EXPECT_EQ(job_.read_json(status), (Json{{"status", "timed_out"}, {"exit_code", 124}}));
}

TEST_F(VerifyTest, WithoutATrainingCommandTheScriptAsksForIt) {
  Json space = job_.read_json("space.json");
  space["dstune"].erase("training_command");
  job_.write("space.json", space);
  expect_exit(job_, run(), 0);
  job_.write_text("speeds", "1 30\n2 20\n3 15\n4 10\n");
  const Ended refused = bash({results + "verify.pbs"});
  EXPECT_EQ(refused.exit_code, 3) << refused;
  EXPECT_EQ(count_of(refused.err, "TRAINING_COMMAND"), 1) << refused;
  EXPECT_FALSE(job_.exists(results + "verify"));
  const Ended without =
      bash({results + "verify.pbs"}, {{"TRAINING_COMMAND", "deepspeed t.py | tee log"}});
  EXPECT_EQ(without.exit_code, 3) << without;
  EXPECT_FALSE(job_.exists(results + "verify"));
  const Ended ended =
      bash({results + "verify.pbs"},
           {{"TRAINING_COMMAND", "deepspeed --num_gpus $NUM_GPUS t.py \"$CONFIG\""}});
  EXPECT_EQ(ended.exit_code, 0) << ended;
  EXPECT_EQ(count_of(job_.read("calls"), "deepspeed --num_gpus 1 t.py /"), 4);
}

TEST_F(VerifyTest, FoldersMayHaveBlanksAndQuotes) {
  const std::string folder = "it's $HOME \"here\"";
  const Ended tuned = run({"--results-dir", folder});
  EXPECT_EQ(tuned.exit_code, 0) << tuned;
  job_.write_text("speeds", "1 30\n2 20\n3 15\n4 10\n");
  // The stand-in finds the path in JSON by a pattern that stops at a quote.
  job_.write_text(
      "bin/deepspeed",
      "#!/bin/bash\nconfig=${@: -1}\necho '{}' >\"$(dirname \"$config\")/metrics.json\"\n");
  const Ended ended = bash({folder + "/verify.sbatch"});
  EXPECT_EQ(ended.exit_code, 0) << ended;
  EXPECT_TRUE(job_.exists(folder + "/verify/" + short_name(0, 4) + "/metrics.json"));
}

}  // namespace
}  // namespace dstune::e2e
