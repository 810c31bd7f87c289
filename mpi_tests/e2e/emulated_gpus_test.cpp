// Jobs on emulated GPUs that fail as only GPUs do.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class EmulatedGpusTest : public testing::Test {
 protected:
  EmulatedGpusTest() { job_.write("config.json", tiny_gpt2_config()); }

  /// On so many ranks with a GPU each.
  Ended run(int ranks, const Json& space, std::map<std::string, std::string> environment = {},
            std::vector<std::string> more_args = {}) {
    job_.write("space.json", space);
    environment.try_emplace("DSTUNE_EMULATED_GPUS", std::to_string(ranks));
    std::vector<std::string> args{"--backend", "cuda", "space.json"};
    args.insert(args.end(), more_args.begin(), more_args.end());
    return job_.run({.ranks = ranks, .args = args, .environment = environment, .limit_s = 120});
  }
  /// A check on two ranks with a GPU each, as JSON.
  Ended check(const std::string& backend = "cuda",
              std::map<std::string, std::string> environment = {}) {
    environment["DSTUNE_EMULATED_GPUS"] = "2";
    return job_.run({.ranks = 2,
                     .args = {"check", "--backend", backend, "--format", "json"},
                     .environment = environment,
                     .limit_s = 120});
  }
  /// Trainings on so many GPUs, whose micro-steps can be graphs.
  static Json space_of_graphs(const std::vector<int>& num_gpus) {
    Json space = transformer_space(num_gpus);
    space["bf16"] = {{"enabled", true}};
    space["gradient_accumulation_steps"] = 2;
    return space;
  }
  /// Which ranks have a context on a GPU.
  std::vector<bool> have_contexts() {
    std::vector<bool> have;
    const Json environment = job_.read_json(results + "environment.json");
    for (const Json& rank : environment["ranks"]) have.push_back(rank.contains("context_bytes"));
    return have;
  }
  /// The same job where the machine was measured before, so that a GPU's first steps are those of
  /// its first experiment, and where an experiment is given up after 20 s.
  Ended run_measured(int ranks, const Json& space, const std::string& hang) {
    expect_exit(job_, run(ranks, space), 0);
    const std::string path = (job_.folder() / (results + "journal.jsonl")).string();
    std::ifstream whole(path);
    std::string kept;
    for (std::string line; std::getline(whole, line);)
      if (line.find("\"kind\":\"profile\"") != std::string::npos) kept += line + "\n";
    EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), 1);
    std::filesystem::remove_all(job_.folder() / results);
    std::filesystem::create_directory(job_.folder() / results);
    std::ofstream(path) << kept;
    return run(ranks, space, {{"DSTUNE_EMULATED_HANG", hang}}, {"--trial-timeout", "8s"});
  }
  void expect_all_ok(const Ended& ended, std::size_t count) {
    expect_exit(job_, ended, 0);
    const auto metrics = all_metrics(job_);
    EXPECT_EQ(metrics.size(), count);
    for (const auto& [name, measured] : metrics)
      EXPECT_EQ(measured["status"], "ok") << name << ": " << measured["reason"];
  }

  Job job_;
};

TEST_F(EmulatedGpusTest, GroupsTrainByNccl) {
  // Its user's variable stands above what each communicator is asked to be.
  expect_all_ok(run(2, space_of_graphs({1, 2}), {{"NCCL_COMM_BLOCKING", "1"}}), 8);
  for (const auto& [name, measured] : all_metrics(job_)) {
    EXPECT_FALSE(measured.contains("fallbacks")) << name;
    EXPECT_FALSE(measured.contains("not_comparable")) << name;
  }
}

// The profiling has tried it for these ranks, and no experiment does again.
TEST_F(EmulatedGpusTest, WhereNcclCanNotBeCapturedTrainingsGoOnWithoutGraphsAndSaySo) {
  const Json space = space_of_graphs({2});
  const std::string words = "micro-steps are not launched as CUDA graphs";
  for (const char* const refusing : {"all", "1"}) {
    const Ended ended = run(2, space, {{"DSTUNE_EMULATED_NCCL_REFUSES_CAPTURE", refusing}});
    expect_all_ok(ended, 4);
    for (const auto& [name, measured] : all_metrics(job_)) {
      ASSERT_EQ(measured.value("fallbacks", Json::array()).size(), 1U) << name << measured;
      const std::string text = measured["fallbacks"][0];
      EXPECT_EQ(count_of(text, words), 1) << text;
      EXPECT_EQ(count_of(text, "NCCL: unhandled cuda error: Cuda failure 900"), 1) << text;
      EXPECT_EQ(measured["not_comparable"], text);
      EXPECT_EQ(measured["peak_memory_bytes"].value("graphs", 0), 0) << name;
    }
    EXPECT_GE(count_of(job_.read(results + "summary.txt"), "4 experiments are not comparable"), 1);
    EXPECT_GE(count_of(job_.read(results + "report.json"), words), 1);
    std::filesystem::remove_all(job_.folder() / results);
  }
}

// Nobody asks for GPUs to measure copies through the host.
TEST_F(EmulatedGpusTest, ALibraryThatIsMissingIsNamed) {
  const auto refused = [&](int ranks, const std::string& variable, const std::string& value) {
    const Ended ended = run(ranks, transformer_space({1}), {{variable, value}});
    expect_exit(job_, ended, 6);
    EXPECT_FALSE(job_.exists(results + "journal.jsonl"));
    return ended.err;
  };
  const std::string words = "a training step on GPUs needs cuDNN: it is not there (rank 0, ";
  EXPECT_EQ(count_of(refused(1, "DSTUNE_EMULATED_NO_CUDNN", "1"), words), 1);
  const Ended automatic =
      job_.run({.ranks = 1,
                .args = {"space.json"},
                .environment = {{"DSTUNE_EMULATED_GPUS", "1"}, {"DSTUNE_EMULATED_NO_CUDNN", "1"}},
                .limit_s = 120});
  expect_exit(job_, automatic, 6);
  EXPECT_EQ(count_of(automatic.err, words), 1) << automatic.err;
  const std::string old = refused(2, "DSTUNE_EMULATED_NCCL_VERSION", "21403");
  EXPECT_EQ(count_of(old, "--backend cuda: NCCL: "), 1) << old;
  EXPECT_EQ(count_of(old, "is NCCL 2.14.3, and 2.19.1 or newer is needed"), 1) << old;
  // A job without our own step needs none of it.
  expect_exit(job_, run(1, synthetic_space({1}, {1}), {{"DSTUNE_EMULATED_NO_CUDNN", "1"}}), 0);
  std::filesystem::remove_all(job_.folder() / results);
  // One rank has nobody to send anything to.
  expect_all_ok(run(1, transformer_space({1}), {{"DSTUNE_EMULATED_NCCL_VERSION", "21403"}}), 4);
}

// A rank that times nothing tells of no choice.
TEST_F(EmulatedGpusTest, ALibrarysChoicesAreKeptForLaterJobs) {
  const std::string file = results + "library_choices.json";
  const std::string words = " choices by time";
  const auto run_stages = [&](const std::vector<int>& stages, const std::string& version) {
    Json space = transformer_space({2});
    space["bf16"] = {{"enabled", true}};
    space["zero_optimization"] = {{"stage", stages}};
    job_.write("space.json", space);
    const Ended ended = job_.run({.ranks = 2,
                                  .args = {"--backend", "cuda", "--verbose", "space.json"},
                                  .environment = {{"DSTUNE_EMULATED_GPUS", "2"},
                                                  {"DSTUNE_EMULATED_CUBLASLT_VERSION", version}},
                                  .program = {DSTUNE_E2E_WITH_LIBRARIES},
                                  .limit_s = 120});
    expect_all_ok(ended, stages.size());
    return ended.err;
  };
  const auto count_by = [&](const std::string& library) {
    int count = 0;
    const Json kept = job_.read_json(file);
    for (const auto& [what, place] : kept["choices"].items())
      count += what.starts_with(library + ", emulated GPU 9.0: ") ? 1 : 0;
    return count;
  };
  EXPECT_GE(count_of(run_stages({0}, "130100"), words), 1);
  const int products = count_by("cuBLASLt 130100");
  EXPECT_GE(products, 10);
  EXPECT_GE(count_by("cuDNN 91900"), 2);
  const std::string first = job_.read(file);
  EXPECT_EQ(count_of(run_stages({0, 1}, "130100"), words), 0);
  EXPECT_EQ(job_.read(file), first);
  EXPECT_GE(count_of(run_stages({0, 1, 2}, "130200"), words), 1);
  EXPECT_EQ(count_by("cuBLASLt 130200"), products);
  EXPECT_EQ(count_by("cuBLASLt 130100"), products);
  // A file that is not as it was written is not used, and stays.
  job_.write_text(file, first + "\n");
  const std::string said = run_stages({0, 1, 2, 3}, "130100");
  EXPECT_EQ(count_of(said, "library_choices.json is not as dstune-mpi wrote it"), 1) << said;
  EXPECT_GE(count_of(said, words), 1);
  EXPECT_EQ(job_.read(file), first + "\n");
}

// CUDA's context and libraries are part of what a training takes there.
TEST_F(EmulatedGpusTest, TheTargetsMemoryIsThatOfAGpu) {
  job_.write("space.json", transformer_space({1}));
  const auto planned_bytes = [&](const std::string& backend) {
    const Ended ended =
        job_.run({.ranks = 0,
                  .args = {"plan", "--format", "json", "--backend", backend, "space.json"},
                  .environment = {{"DSTUNE_EMULATED_GPUS", "1"}}});
    EXPECT_EQ(ended.exit_code, 0) << ended;
    return Json::parse(ended.out)["experiments"]
        .at(0)["predicted"]["target_memory_bytes"]
        .get<std::int64_t>();
  };
  EXPECT_GE(planned_bytes("cuda"), planned_bytes("cpu") + (std::int64_t{544} << 20));
}

TEST_F(EmulatedGpusTest, TheCheckReplaysACollectiveOfNccl) {
  const Ended ended = check();
  const Json found = Json::parse(ended.out);
  ASSERT_EQ(found["ranks"].size(), 2U) << ended;
  for (const Json& rank : found["ranks"]) {
    EXPECT_EQ(rank["backend"], "cuda");
    EXPECT_EQ(rank["recording"], "") << ended;
    EXPECT_GT(rank["bf16_flops_per_s"], 0) << ended;
    EXPECT_EQ(count_of(rank["groups"].at(0)["transport"], "NCCL"), 1) << ended;
    EXPECT_GT(rank["groups"].at(0)["bus_bandwidth"].at(0)["all_reduce_bytes_per_s"], 0) << ended;
  }
}

TEST_F(EmulatedGpusTest, TheCheckTellsWhatTheDriverKnows) {
  Process holder = job_.start({.ranks = 0,
                               .args = {"17000000000", "is_held"},
                               .environment = {{"DSTUNE_EMULATED_GPUS", "2"}},
                               .program = {DSTUNE_E2E_HOLDER}});
  while (!job_.exists("is_held")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Ended ended = check();
  const Json found = Json::parse(ended.out);
  ASSERT_EQ(found["ranks"].size(), 2U) << ended;
  for (const Json& rank : found["ranks"]) {
    const Json& gpu = rank["gpu"];
    EXPECT_EQ(gpu["compute_mode"], "default") << gpu;
    EXPECT_EQ(gpu["mig_mode"], false) << gpu;
    EXPECT_EQ(gpu["ecc"], true) << gpu;
    EXPECT_EQ(gpu["uncorrected_errors"], 0) << gpu;
    EXPECT_EQ(gpu["repair_pending"], false) << gpu;
    EXPECT_EQ(gpu["sm_clock_mhz"], gpu["max_sm_clock_mhz"]) << gpu;
    EXPECT_EQ(gpu["pcie_width"], 16) << gpu;
    EXPECT_EQ(gpu["nvlinks"], 18) << gpu;
    ASSERT_EQ(gpu["peer_access"].size(), 1U) << gpu;
    EXPECT_EQ(gpu["peer_access"].begin().value(), true) << gpu;
    EXPECT_GT(gpu["driver_cuda"], gpu["runtime_cuda"]) << gpu;
    // Ranks are asked before any of them has a context.
    EXPECT_EQ(gpu["processes"].size(), rank["rank"] == 0 ? 1U : 0U) << gpu;
  }
  // Other notes are the machine's.
  std::vector<std::string> of_gpus;
  for (const std::string note : found["notes"])
    if (count_of(note, "its GPU") > 0) of_gpus.push_back(note);
  ASSERT_EQ(of_gpus.size(), 1U) << found["notes"];
  EXPECT_EQ(count_of(of_gpus.front(), "rank 0"), 1) << of_gpus.front();
  EXPECT_EQ(count_of(of_gpus.front(), "(hold_emulated_g) computes on its GPU"), 1)
      << of_gpus.front();
}

TEST_F(EmulatedGpusTest, TheCheckNamesADriverThatIsTooOld) {
  for (const char* const backend : {"cuda", "auto"}) {
    const Ended ended = check(backend, {{"DSTUNE_EMULATED_DRIVER", "11080"}});
    EXPECT_EQ(ended.exit_code, 6) << ended;
    const Json found = Json::parse(ended.out);
    EXPECT_EQ(found["exit_code"], 6) << ended;
    EXPECT_EQ(count_of(found["failures"].at(0), "newer than what the driver supports, 11.8"), 1)
        << ended;
    EXPECT_EQ(found["ranks"].size(), 2U) << ended;
  }
}

TEST_F(EmulatedGpusTest, ACheckWhoseGpuDoesNotAnswerTellsWhatItKnows) {
  const Ended ended = check("cuda", {{"DSTUNE_EMULATED_HANG", "1:60:calls"}});
  EXPECT_EQ(ended.exit_code, 6) << ended;
  const Json found = Json::parse(ended.out);
  EXPECT_EQ(found["exit_code"], 6) << ended;
  ASSERT_FALSE(found["failures"].empty()) << ended;
  ASSERT_EQ(found["ranks"].size(), 2U) << ended;
  EXPECT_EQ(found["ranks"].at(1)["gpu"]["nvlinks"], 18) << ended;
}

// Communicators that are split from one another, captured side by side: where one of them could not
// be, the log would say so and the graphs would take nothing.
TEST_F(EmulatedGpusTest, PartsOfAGroupTrainInGraphs) {
  Json space = space_of_graphs({4});
  space["zero_optimization"] = {{"stage", 3},
                                {"overlap_comm", true},
                                {"zero_hpz_partition_size", {1, 2}},
                                {"zero_quantized_gradients", true}};
  expect_all_ok(run(4, space), 2);
  for (const auto& [name, measured] : all_metrics(job_))
    EXPECT_GT(measured["peak_memory_bytes"].value("graphs", 0), 0) << name;
}

// It makes no context, so the GPU that it would have shared is its rank's alone.
TEST_F(EmulatedGpusTest, ARankThatOnlyCoordinatesTakesNothingOfAGpu) {
  const Ended ended = run(3, transformer_space({2}), {{"DSTUNE_EMULATED_GPUS", "2"}},
                          {"--coordinator", "dedicated"});
  expect_all_ok(ended, 4);
  EXPECT_EQ(have_contexts(), (std::vector{false, true, true}));
}

// The very reason to leave one out.
TEST_F(EmulatedGpusTest, AGpuThatIsLeftOutMayBeBroken) {
  const Ended ended = run(3, transformer_space({1, 2}),
                          {{"DSTUNE_PRETEND_HOSTS", "node-a:3"}, {"DSTUNE_EMULATED_LOSE", "1:1"}},
                          {"--exclude", "node-a:1"});
  expect_all_ok(ended, 8);
  EXPECT_EQ(have_contexts(), (std::vector{true, false, true}));
}

// For good.
TEST_F(EmulatedGpusTest, ALostContextCostsOneAttemptAndTheRank) {
  Json space = transformer_space({1});
  space["train_micro_batch_size_per_gpu"] = {1, 2};
  // While the machine is measured, where nobody counts it; then in its first experiment.
  const Ended ended = run(2, space, {{"DSTUNE_EMULATED_LOSE", "1:1000"}});
  expect_all_ok(ended, 8);
  EXPECT_NE(ended.err.find("device lost by rank 1, not used again"), std::string::npos) << ended;
}

// The context is as it was, and so is the process: it only must not wait for the GPU. Its peer is
// inside a collective.
TEST_F(EmulatedGpusTest, AGpuThatHangsCostsOneAttemptAndTheRank) {
  const Ended ended = run_measured(4, transformer_space({2}), "3:500");
  expect_all_ok(ended, 4);
  EXPECT_EQ(count_of(ended.err,
                     "took longer than --trial-timeout 8.00 s; no answer from the device of rank "
                     "3, not used again; its device's memory is held until its process ends"),
            1)
      << ended;
  int second_attempts = 0;
  for (const auto& [name, measured] : all_metrics(job_))
    second_attempts += measured["attempt"] == 2 ? 1 : 0;
  EXPECT_EQ(second_attempts, 1);
  EXPECT_LT(ended.wall_s, 100) << ended;
}

// Of all ranks: none can go on, and all end.
TEST_F(EmulatedGpusTest, WhereAllGpusHangTheJobEndsWithWhatIsKnown) {
  Json space = transformer_space({1});
  space["train_micro_batch_size_per_gpu"] = {1, 2, 3, 4};
  // More than the first experiment takes, less than all.
  const Ended ended = run_measured(1, space, "0:1500");
  expect_exit(job_, ended, 75);
  EXPECT_NE(ended.err.find("no answer from the device of rank 0"), std::string::npos) << ended;
  EXPECT_EQ(results_table(job_)[short_name(0, 1)]["status"], "ok");
  EXPECT_TRUE(job_.exists(results + "ds_config_optimal.json"));
}

// The thread that works is stuck in CUDA then, and says nothing any more.
TEST_F(EmulatedGpusTest, ARankWhoseCallsHangIsLostAndLeavesWithTheJob) {
  const Ended ended = run_measured(4, transformer_space({2}), "3:500:calls");
  EXPECT_FALSE(ended.is_late) << ended;
  EXPECT_EQ(job_.read_json(results + "exit_status.json")["exit_code"], 0) << ended;
  // The one where it waited in CUDA, the other where it waited for its peers just then.
  EXPECT_EQ(count_of(ended.err, "lost rank 3, not used again") +
                count_of(ended.err, "no answer from the device of rank 3, not used again"),
            1)
      << ended;
  for (const auto& [name, measured] : all_metrics(job_))
    EXPECT_EQ(measured["status"], "ok") << name << ": " << measured["reason"];
  EXPECT_EQ(all_metrics(job_).size(), 4U);
  EXPECT_TRUE(job_.exists(results + "ds_config_optimal.json"));
}

}  // namespace
}  // namespace dstune::e2e
