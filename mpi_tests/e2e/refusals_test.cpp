// What is refused: the exit code, one message that names the place, nothing written, nobody left
// waiting.
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int usage = 2;
constexpr int bad_input = 3;
constexpr int no_device = 6;
constexpr int not_writable = 7;
/// Far less than any wait inside the program; most of it is mpirun's start on a busy machine.
constexpr double fast_s = 30;

/// "space.json:<line>" of the first line that holds `part`.
std::string place_of(const std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return "space.json:" + std::to_string(1 + count_of(text.substr(0, at), "\n"));
}

/// Replaces the only occurrence.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  EXPECT_EQ(count_of(text, from), 1) << from;
  return text.replace(text.find(from), from.size(), to);
}

class RefusalTest : public testing::Test {
 protected:
  /// All files but exit_status.json, which says how each job has ended.
  [[nodiscard]] std::map<std::string, std::string> contents_but_the_end() const {
    std::map<std::string, std::string> found = job_.contents();
    found.erase(results + "exit_status.json");
    found.erase("autotuning_results");
    return found;
  }
  /// Runs at 3 ranks; each part is in one message, once for the whole job.
  void expect_refused(const Command& command, int exit_code,
                      const std::vector<std::string>& parts) {
    const auto before = contents_but_the_end();
    const Ended ended = job_.run(command);
    EXPECT_EQ(ended.exit_code, exit_code) << ended;
    for (const std::string& part : parts) {
      EXPECT_EQ(count_of(ended.err, part), 1) << "\"" << part << "\" once in\n" << ended;
    }
    EXPECT_EQ(count_of(ended.err, "error"), count_of(ended.err, "error:"))
        << "nothing but our own messages speaks of errors\n"
        << ended;
    EXPECT_EQ(ended.out.find("dstune"), std::string::npos) << ended;
    EXPECT_LT(ended.wall_s, fast_s);
    EXPECT_EQ(contents_but_the_end(), before) << "bad input writes nothing but exit_status.json";
  }
  void expect_bad_space(const std::string& text, const std::vector<std::string>& parts) {
    job_.write_text("space.json", text);
    expect_refused({.ranks = 3, .args = {"space.json"}}, bad_input, parts);
  }
  [[nodiscard]] static std::string good_text() { return synthetic_space({1, 2}, {1, 2}).dump(2); }

  Job job_;
};

TEST_F(RefusalTest, SaysWhyThereIsNoGpu) {
  const std::string version = job_.run({.ranks = 1, .args = {"--version"}}).out;
  if (count_of(version, "CUDA: not built") + count_of(version, "GPUs that answer: 0") == 0)
    GTEST_SKIP() << "there is one";
  job_.write_text("space.json", good_text());
  expect_refused({.ranks = 3, .args = {"space.json", "--backend", "cuda"}}, no_device,
                 {"--backend cuda: ", "use cpu"});
}

TEST_F(RefusalTest, NamesTheMissingFile) {
  expect_refused({.ranks = 3, .args = {"absent.json"}}, bad_input, {"can not read absent.json"});
}

TEST_F(RefusalTest, WaitsForNoFifo) {
  ASSERT_EQ(mkfifo((job_.folder() / "fifo").c_str(), 0600), 0);
  expect_refused({.ranks = 3, .args = {"fifo"}}, bad_input, {"can not read fifo: it is a fifo"});
  job_.write_text("space.json", good_text());
  expect_refused({.ranks = 3, .args = {"--hostfile", "/dev/zero", "space.json"}}, bad_input,
                 {"can not read /dev/zero: it is a device"});
}

TEST_F(RefusalTest, ReadsNoHugeFile) {
  const auto refusal = [&](const std::string& part) {
    const Ended ended = job_.run({.ranks = 0, .args = {"plan", "space.json"}});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, part), 1) << ended;
    EXPECT_LT(ended.wall_s, 10) << "far less than reading it takes";
  };
  job_.write_text("space.json", good_text());
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
  expect_refused({.ranks = 3, .args = {"\x1b[2J.json"}}, bad_input,
                 {R"(can not read \x1B[2J.json)"});
}

TEST_F(RefusalTest, RefusesExperimentsWithNamesThatNoFileCanHave) {
  job_.write_text("space.json", good_text());
  for (const std::size_t size : {241U, 251U, 255U, 300U}) {
    job_.write("experiment.json", {{"ds_config", {{"train_micro_batch_size_per_gpu", 1}}},
                                   {"num_gpus", 1},
                                   {"name", std::string(size, 'n')}});
    expect_refused(
        {.ranks = 0, .args = {"plan", "--experiments", "experiment.json", "space.json"}}, bad_input,
        {"experiment.json:6: /name: ", "at most 240 characters, not " + std::to_string(size)});
  }
}

TEST_F(RefusalTest, RefusesExperimentsWithNamesOfOurFiles) {
  job_.write_text("space.json", good_text());
  for (const char* name : {"lock", "summary.txt", "journal.jsonl", "optimal"}) {
    job_.write(
        "experiment.json",
        {{"ds_config", {{"train_micro_batch_size_per_gpu", 1}}}, {"num_gpus", 1}, {"name", name}});
    expect_refused({.ranks = 3, .args = {"--experiments", "experiment.json", "space.json"}},
                   bad_input, {"experiment.json:6: /name: " + std::string(name)});
  }
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

TEST_F(RefusalTest, NamesTheStageThatDoesNotExist) {
  const std::string text = changed(good_text(), R"("stage": 0)", R"("stage": 4)");
  expect_bad_space(text, {place_of(text, "\"stage\""), "/zero_optimization/stage"});
}

TEST_F(RefusalTest, NamesTheOneCandidateThatIsWrong) {
  const std::string text = changed(good_text(), R"("stage": 0)", "\"stage\": [\n0,\n1,\n4]");
  expect_bad_space(text, {place_of(text, "4]"), "/zero_optimization/stage/2"});
}

TEST_F(RefusalTest, NamesUnknownKeysOfOurSection) {
  const std::string text = changed(good_text(), R"("trial_budget_s")", R"("trial_budgets")");
  expect_bad_space(text, {place_of(text, "trial_budgets"), "/dstune/trial_budgets"});
}

TEST_F(RefusalTest, NamesUnknownKeysOfAutotuning) {
  const std::string text = changed(good_text(), R"("tuner_type")", R"("tuner_typ")");
  expect_bad_space(text, {place_of(text, "tuner_typ"), "/autotuning/tuner_typ"});
}

TEST_F(RefusalTest, NamesUnknownKeysOfZeroOptimization) {
  const std::string text =
      changed(good_text(), R"("stage": 0)", "\"stage\": 0,\n\"reduce_bucket\": 5");
  expect_bad_space(text, {place_of(text, "reduce_bucket"), "/zero_optimization/reduce_bucket"});
}

TEST_F(RefusalTest, NamesDuplicateKeys) {
  const std::string text = changed(good_text(), R"("stage": 0)",
                                   "\"stage\": 0,\n\"reduce_scatter\": true,\n\"stage\": 1");
  expect_bad_space(text, {place_of(text, R"("stage": 1)"), "/zero_optimization/stage"});
}

TEST_F(RefusalTest, NamesEveryProblemAtOnce) {
  std::string text = changed(good_text(), R"("stage": 0)", R"("stage": 5)");
  text = changed(text, R"("tuner_type")", R"("tuner_typ")");
  text =
      changed(text, R"("gradient_accumulation_steps": 1)", R"("gradient_accumulation_steps": -1)");
  expect_bad_space(
      text, {"/zero_optimization/stage", "/autotuning/tuner_typ", "/gradient_accumulation_steps"});
}

TEST_F(RefusalTest, NamesGroupsLargerThanTheJob) {
  const std::string text = synthetic_space({1, 7}, {1, 2}).dump(2);
  expect_bad_space(text, {place_of(text, "7"), "/dstune/resources/num_gpus/1", "mpirun -np 7"});
}

TEST_F(RefusalTest, NamesTheModelThatIsNotBuilt) {
  Json config = tiny_gpt2_config();
  config["model_type"] = "t5";
  job_.write("config.json", config);
  job_.write("space.json", transformer_space({1}));
  expect_refused({.ranks = 3, .args = {"space.json"}}, bad_input,
                 {"config.json:2", "/model_type", "t5"});
}

TEST_F(RefusalTest, NamesThePresetThatDoesNotExist) {
  job_.write("space.json", synthetic_space({1}, {1}));
  expect_refused({.ranks = 3, .args = {"--model", "gpt17", "space.json"}}, bad_input, {"gpt17"});
}

TEST_F(RefusalTest, NamesTheUnknownOption) {
  job_.write("space.json", synthetic_space({1}, {1}));
  expect_refused({.ranks = 3, .args = {"--frobnicate", "space.json"}}, usage, {"--frobnicate"});
}

TEST_F(RefusalTest, AsksWhatAMistypedCommandMeans) {
  job_.write("space.json", synthetic_space({1}, {1}));
  expect_refused({.ranks = 3, .args = {"plna", "space.json"}}, usage, {"did you mean plan?"});
  expect_refused({.ranks = 0, .args = {"Plan"}}, usage, {"did you mean plan?"});
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"frobnicate", "space.json"}, {"version"}})
    expect_refused(
        {.ranks = 0, .args = words}, usage,
        {"\"" + words.front() + "\" is neither a command (plan, check, help) nor a file"});
  expect_refused({.ranks = 0, .args = {"plan", "-v"}}, usage, {"-v is neither an option"});
  // A file of such a name is a space.
  job_.write("plane", synthetic_space({1}, {1}));
  EXPECT_EQ(job_.run({.ranks = 0, .args = {"plane", "--dry-run"}}).exit_code, 0);
}

TEST_F(RefusalTest, KnowsTheWordsForHelp) {
  const std::string help = job_.run({.ranks = 0, .args = {"--help"}}).out;
  EXPECT_EQ(count_of(help, "--backend"), 1) << help;
  for (const char* word : {"-h", "help"}) {
    const Ended ended = job_.run({.ranks = 0, .args = {word}});
    EXPECT_EQ(ended.exit_code, 0) << ended;
    EXPECT_EQ(ended.out, help) << word;
  }
  job_.write("space.json", synthetic_space({1}, {1}));
  expect_refused({.ranks = 0, .args = {"--backend", "tpu", "space.json"}}, usage,
                 {"use one of auto, cpu, cuda"});
}

TEST_F(RefusalTest, NamesTheLimitThatLetsNothingRun) {
  if (std::getenv("ASAN_OPTIONS") != nullptr) GTEST_SKIP() << "its shadow needs more";
  job_.write("space.json", synthetic_space({1}, {1}));
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
      EXPECT_EQ(job_.read_json(results + "exit_status.json")["exit_code"], no_device);
      std::filesystem::remove(job_.folder() / (results + "exit_status.json"));
    }
  }
}

TEST_F(RefusalTest, SaysThatRanksHaveNoRoomForWhatTheyShare) {
  job_.write("space.json", synthetic_space({1}, {1}));
  const Ended ended = job_.run({.ranks = 2,
                                .args = {"space.json"},
                                .launcher = {"sh", "-c", "ulimit -f 100 && exec \"$@\"", "sh"}});
  EXPECT_EQ(ended.exit_code, not_writable) << ended;
  EXPECT_GE(count_of(ended.err, "the ranks of a host can not share"), 1) << ended;
  EXPECT_EQ(job_.read_json(results + "exit_status.json")["exit_code"], not_writable);
}

TEST_F(RefusalTest, WantsASpace) {
  expect_refused({.ranks = 3}, usage, {"no space.json"});
}

TEST_F(RefusalTest, NamesTheTunersThereAre) {
  job_.write("space.json", synthetic_space({1}, {1}));
  expect_refused({.ranks = 3, .args = {"--tuner", "rice", "space.json"}}, usage, {"rice"});
}

TEST_F(RefusalTest, NamesTheFolderThatCanNotBeWritten) {
  job_.write("space.json", synthetic_space({1}, {1}));
  job_.write_text("file", "not a folder\n");
  expect_refused({.ranks = 3, .args = {"--results-dir", "file/results", "space.json"}},
                 not_writable, {"file/results"});
}

TEST_F(RefusalTest, LeavesEarlierResultsAloneEvenWhereTheyAreToBeOverwritten) {
  job_.write("space.json", synthetic_space({1, 2}, {1}, 0.001));
  expect_exit(job_, job_.run({.ranks = 2, .args = {"space.json"}}), 0);
  Json space = synthetic_space({1, 2}, {1});
  space["zero_optimization"]["stage"] = 4;
  job_.write("space.json", space);
  expect_refused({.ranks = 3, .args = {"--overwrite", "space.json"}}, bad_input,
                 {"/zero_optimization/stage"});
}

TEST_F(RefusalTest, LetsEveryRankLeaveWithTheSameCode) {
  job_.write_text("leave.sh",
                  "\"$@\"\ncode=$?\necho $code > code.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n");
  job_.write("space.json", synthetic_space({9}, {1}));
  const Ended ended = job_.run({.ranks = 4,
                                .args = {"space.json"},
                                .environment = {{"OMPI_MCA_orte_abort_on_non_zero_status", "0"}},
                                .launcher = {"sh", "leave.sh"}});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(job_.read("code." + std::to_string(rank)), "3\n") << ended;
  }
}

TEST(InformationTest, NeedsNoMpirun) {
  Job job;
  const Ended help = job.run({.ranks = 0, .args = {"--help"}});
  EXPECT_EQ(help.exit_code, 0) << help;
  for (const char* option : {"--dry-run", "--results-dir", "--time-limit", "space.json"}) {
    EXPECT_NE(help.out.find(option), std::string::npos) << option;
  }
  const Ended version = job.run({.ranks = 0, .args = {"--version"}});
  EXPECT_EQ(version.exit_code, 0) << version;
  for (const char* part : {"dstune-mpi", "MPI", "CUDA", "NCCL", "oneDNN"}) {
    EXPECT_NE(version.out.find(part), std::string::npos) << part;
  }
}

TEST(InformationTest, IsSaidOnceUnderMpirun) {
  Job job;
  const Ended version = job.run({.ranks = 3, .args = {"--version"}});
  EXPECT_EQ(version.exit_code, 0) << version;
  EXPECT_EQ(count_of(version.out, "dstune-mpi"), 1) << version;
}

}  // namespace
}  // namespace dstune::e2e
