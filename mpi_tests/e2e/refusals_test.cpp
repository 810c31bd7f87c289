// A refusal: the exit code, one message that names the place, nothing written, nobody left
// waiting.
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// Far less than any wait inside the program; most of it is mpirun's start on a busy machine.
constexpr double fast_s = 30;

/// "space.json:<line>: " of the first line that holds `part`.
std::string place_of(const std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return "space.json:" + std::to_string(1 + count_of(text.substr(0, at), "\n")) + ": ";
}

/// Replaces the only occurrence.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  EXPECT_EQ(count_of(text, from), 1) << from;
  return text.replace(text.find(from), from.size(), to);
}

class RefusalTest : public JobTest {
 protected:
  RefusalTest() { job_.write_text("space.json", good_text()); }

  /// Each part is in one message, once for the whole job.
  void expect_refused(const Command& command, int exit_code,
                      const std::vector<std::string>& parts) {
    const Ended ended = e2e::expect_refused(job_, command, exit_code, parts);
    EXPECT_EQ(count_of(ended.err, "error"), count_of(ended.err, "error:"))
        << "nothing but our own messages speaks of errors\n"
        << ended;
    EXPECT_EQ(count_of(ended.out, "dstune"), 0) << ended;
    EXPECT_LT(ended.wall_s, fast_s);
  }
  void expect_bad_space(const std::string& text, const std::vector<std::string>& parts) {
    job_.write_text("space.json", text);
    expect_refused({.ranks = 3, .args = {"space.json"}}, bad_input, parts);
  }
  [[nodiscard]] static std::string good_text() { return synthetic_space({1, 2}, {1, 2}).dump(2); }
};

TEST_F(RefusalTest, SaysWhyThereIsNoGpu) {
  const std::string version = job_.run({.ranks = 1, .args = {"--version"}}).out;
  if (count_of(version, "CUDA: not built") + count_of(version, "GPUs that answer: 0") == 0)
    GTEST_SKIP() << "there is one";
  expect_refused({.ranks = 3, .args = {"space.json", "--backend", "cuda"}}, no_device,
                 {"--backend cuda: ", "use cpu"});
}

TEST_F(RefusalTest, NamesWhatTheCommandLineHasWrong) {
  ASSERT_EQ(mkfifo((job_.folder() / "fifo").c_str(), 0600), 0);
  job_.write_text("file", "not a folder\n");
  struct Wrong {
    int ranks;
    std::vector<std::string> args;
    int exit_code;
    std::string said;
  };
  const std::string no_command =
      " is neither a command (plan, check, status, batch, help) nor a file";
  for (const auto& [ranks, args, exit_code, said] : std::vector<Wrong>{
           {3, {"absent.json"}, bad_input, "can not read absent.json"},
           {3, {"fifo"}, bad_input, "can not read fifo: it is a fifo"},
           {3,
            {"--hostfile", "/dev/zero", "space.json"},
            bad_input,
            "can not read /dev/zero: it is a device"},
           {3, {"\x1b[2J.json"}, bad_input, R"(can not read \x1B[2J.json)"},
           {3, {"--model", "gpt17", "space.json"}, bad_input, "gpt17"},
           {3, {}, usage, "no space.json"},
           {3, {"--frobnicate", "space.json"}, usage, "--frobnicate"},
           {3, {"--tuner", "rice", "space.json"}, usage, "rice"},
           {0, {"--backend", "tpu", "space.json"}, usage, "use one of auto, cpu, cuda"},
           {3, {"plna", "space.json"}, usage, "did you mean plan?"},
           {0, {"Plan"}, usage, "did you mean plan?"},
           {0, {"frobnicate", "space.json"}, usage, "\"frobnicate\"" + no_command},
           {0, {"version"}, usage, "\"version\"" + no_command},
           {0, {"plan"}, usage, "dstune-mpi plan [options] space.json"},
           {0, {"plan", "-v"}, usage, "-v is neither an option"},
           {0, {"plan", "-verbose"}, usage, "(did you mean --verbose?)"},
           {0, {"--tunr=race", "space.json"}, usage, "no option --tunr (did you mean --tuner?)"},
           {0, {"plan", "--num-trails", "3", "space.json"}, usage, "did you mean --num-trials?"},
           {0, {"--format", "jsno", "space.json"}, usage, "text, json (did you mean json?)"},
           {0, {"--metric", "throughputs", "space.json"}, usage, "(did you mean throughput?)"},
           {0, {"--color", "allways", "space.json"}, usage, "(did you mean always?)"},
           {0, {"--overwrite", "plan", "space.json"}, usage, "the command comes first: write"},
           {0, {"--overwrite", "plna", "space.json"}, usage, "dstune-mpi plan before all"},
           {0, {"plan", "space.json", "other.json"}, usage, "space.json and other.json: give one"},
           {0, {"--trial-timeout", "0s", "space.json"}, usage, "no experiment ends in no time"},
           {0, {"--results-dir", "", "space.json"}, usage, "expected the name of a folder"},
           {3, {"--results-dir", "file/results", "space.json"}, not_writable, "file/results"}}) {
    SCOPED_TRACE(said);
    expect_refused({.ranks = ranks, .args = args}, exit_code, {said});
  }
  // A file of such a name is a space.
  job_.write("plane", synthetic_space({1}, {1}));
  EXPECT_EQ(job_.run({.ranks = 0, .args = {"plane", "--dry-run"}}).exit_code, done);
}

TEST_F(RefusalTest, ReadsNoHugeFile) {
  const auto refusal = [&](const std::string& part) {
    const Ended ended = job_.run({.ranks = 0, .args = {"plan", "space.json"}});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, part), 1) << ended;
    EXPECT_LT(ended.wall_s, 10) << "far less than reading it takes";
  };
  std::filesystem::resize_file(job_.folder() / "space.json", (std::size_t{64} << 20) + 1);
  refusal("can not read space.json: it is larger than 64.0 MiB");
  std::string text = "{";
  for (int key = 0; key <= 1'000'000; ++key) text += "\"k" + std::to_string(key) + "\": 1,\n";
  job_.write_text("space.json", text + "\"last\": 1}");
  refusal("space.json:1000001: there are more than 1000000 keys");
  text = "[";
  for (int element = 0; element <= 1'000'000; ++element) text += "1,";
  job_.write_text("space.json", text + "1]");
  refusal("space.json:1: there are more than 1000000 keys and elements");
}

TEST_F(RefusalTest, SendsNoControlCharacterToTheTerminal) {
  const std::string text =
      changed(good_text(), R"("trial_budget_s")", R"("\u001b]0;owned\u0007\u009b2J")");
  expect_bad_space(text, {R"(/dstune/\x1B]0;owned\x07\x9B2J)"});
}

TEST_F(RefusalTest, RefusesExperimentsWithNamesThatNoFileCanHaveAndOfOurFiles) {
  const auto expect_named = [&](const Command& command, const std::string& name,
                                const std::string& said) {
    job_.write(
        "experiment.json",
        {{"ds_config", {{"train_micro_batch_size_per_gpu", 1}}}, {"num_gpus", 1}, {"name", name}});
    expect_refused(command, bad_input, {"experiment.json:6: /name: ", said});
  };
  const std::vector<std::string> args{"--experiments", "experiment.json", "space.json"};
  for (const std::size_t size : {241U, 251U, 255U, 300U})
    expect_named({.ranks = 0, .args = {"plan", args[0], args[1], args[2]}}, std::string(size, 'n'),
                 "at most 240 characters, not " + std::to_string(size));
  for (const std::string name : {"lock", "summary.txt", "journal.jsonl", "optimal"})
    expect_named({.ranks = 3, .args = args}, name, "/name: " + name);
}

TEST_F(RefusalTest, NamesTheLineOfMalformedJson) {
  const std::string text =
      changed(good_text(), R"("tuner_type": "gridsearch")", R"("tuner_type": gridsearch")");
  expect_bad_space(text, {place_of(text, "gridsearch\"")});
}

TEST_F(RefusalTest, NamesTheTrainingCommandThatHidesThePlaceOfItsConfiguration) {
  Json space = synthetic_space({1, 2}, {1, 2});
  space["dstune"]["training_command"] = "deepspeed train.py 2>&1 | tee log";
  const std::string text = space.dump(2);
  expect_bad_space(text, {place_of(text, "\"training_command\""), "/dstune/training_command",
                          "put $CONFIG where its file goes"});
  expect_refused({.ranks = 1, .args = {"--dry-run", "space.json"}}, bad_input,
                 {"/dstune/training_command"});
}

TEST_F(RefusalTest, NamesDuplicateKeys) {
  const std::string text = changed(good_text(), R"("stage": 0)",
                                   "\"stage\": 0,\n\"reduce_scatter\": true,\n\"stage\": 1");
  expect_bad_space(text, {place_of(text, R"("stage": 1)") + "/zero_optimization/stage"});
}

TEST_F(RefusalTest, NamesEveryProblemAtOnce) {
  std::string text = good_text();
  text = changed(text, R"("stage": 0)", "\"stage\": [\n0,\n1,\n4],\n\"reduce_bucket\": 5");
  text = changed(text, R"("trial_budget_s")", R"("trial_budgets")");
  text = changed(text, R"("tuner_type")", R"("tuner_typ")");
  text =
      changed(text, R"("gradient_accumulation_steps": 1)", R"("gradient_accumulation_steps": -1)");
  std::vector<std::string> parts;
  for (const auto& [part, pointer] :
       {std::pair("4]", "/zero_optimization/stage/2"),
        std::pair("reduce_bucket", "/zero_optimization/reduce_bucket"),
        std::pair("trial_budgets", "/dstune/trial_budgets"),
        std::pair("tuner_typ", "/autotuning/tuner_typ"),
        std::pair("gradient_accumulation_steps", "/gradient_accumulation_steps")})
    parts.push_back(place_of(text, part) + pointer);
  expect_bad_space(text, parts);
}

TEST_F(RefusalTest, NamesGroupsLargerThanTheJob) {
  const std::string text = synthetic_space({1, 7}, {1, 2}).dump(2);
  expect_bad_space(text, {place_of(text, "7"), "/dstune/resources/num_gpus/1", "mpirun -np 7"});
}

TEST_F(RefusalTest, NamesTheModelThatIsNotBuilt) {
  Json config = tiny_gpt2_config();
  config["model_type"] = "t5";
  job_.write("space.json", transformer_space({1}));
  job_.write("config.json", config);
  expect_refused({.ranks = 3, .args = {"space.json"}}, bad_input,
                 {"config.json:2", "/model_type", "t5"});
}

TEST_F(RefusalTest, KnowsTheWordsForHelp) {
  const std::string help = job_.run({.ranks = 0, .args = {"--help"}}).out;
  EXPECT_EQ(count_of(help, "--backend"), 1) << help;
  for (const char* word : {"-h", "help"}) {
    const Ended ended = job_.run({.ranks = 0, .args = {word}});
    EXPECT_EQ(ended.exit_code, 0) << ended;
    EXPECT_EQ(ended.out, help) << word;
  }
}

TEST_F(RefusalTest, NamesTheLimitThatLetsNothingRun) {
  if (std::getenv("ASAN_OPTIONS") != nullptr) GTEST_SKIP() << "its shadow needs more";
  const auto limited = [](const std::string& limit) {
    return std::vector<std::string>{"sh", "-c", "ulimit " + limit + " && exec \"$@\"", "sh"};
  };
  for (const auto& [limit, said] :
       {std::pair("-s 64", "the stack is limited to 64.0 KiB (ulimit -s)"),
        std::pair("-v 300000", "the address space is limited to 293 MiB (ulimit -v)"),
        std::pair("-n 18", "the number of open files is limited to 18 (ulimit -n)")}) {
    for (const int ranks : {0, 2}) {
      expect_refused({.ranks = ranks, .args = {"space.json"}, .launcher = limited(limit)},
                     no_device, {said});
      EXPECT_EQ(exit_status_of(job_)["exit_code"], no_device);
      std::filesystem::remove(job_.folder() / (results + "exit_status.json"));
    }
  }
}

TEST_F(RefusalTest, SaysThatRanksHaveNoRoomForWhatTheyShare) {
  const Ended ended = job_.run({.ranks = 2,
                                .args = {"space.json"},
                                .launcher = {"sh", "-c", "ulimit -f 100 && exec \"$@\"", "sh"}});
  EXPECT_EQ(ended.exit_code, not_writable) << ended;
  EXPECT_GE(count_of(ended.err, "the ranks of a host can not share"), 1) << ended;
  EXPECT_EQ(exit_status_of(job_)["exit_code"], not_writable);
}

TEST_F(RefusalTest, LeavesEarlierResultsAloneEvenWhereTheyAreToBeOverwritten) {
  job_.write("space.json", synthetic_space({1, 2}, {1}, 0.001));
  expect_exit(job_, job_.run({.ranks = 2, .args = {"space.json"}}), 0);
  Json space = synthetic_space({1, 2}, {1});
  space["zero_optimization"]["stage"] = 4;
  job_.write("space.json", space);
  const std::string place = place_of(job_.read("space.json"), "\"stage\"");
  expect_refused({.ranks = 3, .args = {"--overwrite", "space.json"}}, bad_input,
                 {place + "/zero_optimization/stage"});
}

TEST_F(RefusalTest, LetsEveryRankLeaveWithTheSameCode) {
  job_.write_text("leave.sh",
                  "\"$@\"\ncode=$?\necho $code > code.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n");
  job_.write("space.json", synthetic_space({9}, {1}));
  const Ended ended = job_.run({.ranks = 4,
                                .args = {"space.json"},
                                .environment = {{"OMPI_MCA_orte_abort_on_non_zero_status", "0"}},
                                .launcher = {"sh", "leave.sh"}});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(job_.read("code." + std::to_string(rank)), "3\n") << ended;
}

TEST_F(RefusalTest, InformationNeedsNoMpirunAndIsSaidOnceUnderIt) {
  const Ended help = job_.run({.ranks = 0, .args = {"--help"}});
  EXPECT_EQ(help.exit_code, done) << help;
  for (const char* option : {"--dry-run", "--results-dir", "--time-limit", "space.json"})
    EXPECT_GE(count_of(help.out, option), 1) << option;
  for (const int ranks : {0, 3}) {
    const Ended version = job_.run({.ranks = ranks, .args = {"--version"}});
    EXPECT_EQ(version.exit_code, done) << version;
    EXPECT_EQ(count_of(version.out, "dstune-mpi"), 1) << version;
    for (const char* part : {"MPI", "CUDA", "NCCL", "oneDNN"})
      EXPECT_GE(count_of(version.out, part), 1) << part;
  }
}

}  // namespace
}  // namespace dstune::e2e
