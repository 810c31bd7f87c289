#include "results_folder.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dstune/base/file.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"

namespace dstune {
namespace {

TEST_F(ResultsFolderTest, AUsersCommandIsForItsOwnerAlone) {
  // It may hold a token.
  const mode_t before = ::umask(0022);
  const test::Concluded optimum = optimum_of(test::sample_record("a"));
  const auto modes = [&](const std::optional<UserCommand>& command) {
    folder_.write_optimal(optimum.recommendation(), command);
    folder_.write_verification(optimum.recommendation(), command);
    folder_.write_page(optimum, {});
    EXPECT_THAT(read_file(results("report.html")), testing::Not(testing::HasSubstr("--token")));
    std::set<fs::perms> found;
    for (const char* name : {"cmd_optimal.txt", "optimal.json", "verify.sbatch", "verify.pbs"})
      found.insert(fs::status(results(name)).permissions());
    return found;
  };
  using enum fs::perms;
  const auto own = owner_read | owner_write;
  EXPECT_EQ(modes(UserCommand{"train.py --token abc $CONFIG"}), std::set{own});
  EXPECT_EQ(modes(std::nullopt), std::set{own | group_read | others_read});
  for (const char* name : {"ds_config_optimal.json", "report.json", "report.html"})
    EXPECT_EQ(fs::status(results(name)).permissions(), own | group_read | others_read) << name;
  ::umask(before);
}

TEST_F(ResultsFolderTest, MakesItsFoldersAndLeavesNoProbe) {
  EXPECT_EQ(everything(), (std::set<std::string>{"results", "exps"}));
  EXPECT_EQ(folder_.journal_path(), results("journal.jsonl"));
  EXPECT_EQ(folder_.path(), temporary_ / "results");
}

TEST_F(ResultsFolderTest, RemovesTemporaryFilesOfAKilledJob) {
  const std::string left = results(".dstune-12-34.tmp"), fresh = results(".dstune-56-78.tmp"),
                    in_exps = exps(".dstune-12-35.tmp"), foreign = results(".other-12-34.tmp");
  for (const std::string& path : {left, fresh, in_exps, foreign}) std::ofstream(path) << "x";
  for (const std::string& path : {left, in_exps, foreign})
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  folder_.begin();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(in_exps));
  EXPECT_TRUE(fs::exists(fresh)) << "another job may be about to rename it";
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(ResultsFolderTest, UnwritableFolderIsAnError) {
  EXPECT_THROW(ResultsFolder("/proc/nowhere", exps("")), IoError);
  EXPECT_THROW(ResultsFolder("/proc", exps("")), IoError);
  std::ofstream(temporary_ / "file") << "x";
  EXPECT_THROW(ResultsFolder(temporary_ / "file", exps("")), IoError);
  EXPECT_THROW(ResultsFolder(results(""), temporary_ / "file"), IoError);
}

TEST_F(ResultsFolderTest, WritesAnExperimentAsDeepSpeedDoes) {
  const Experiment experiment = test::sample_experiment("z1_gas2_tmbspg4");
  folder_.write_experiment(experiment);
  const std::string text = read_file(exps("z1_gas2_tmbspg4.json"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const json::Value description = json::Value::parse(text);
  EXPECT_EQ(description["name"], "z1_gas2_tmbspg4");
  EXPECT_EQ(description["ds_config"], experiment.ds_config);
  EXPECT_EQ(description["num_gpus"], 2);
  EXPECT_EQ(description["num_nodes"], 1);
  EXPECT_TRUE(description["hostfile"].is_null());
  EXPECT_EQ(description.size(), 5U);

  const json::Value exp = results_json("z1_gas2_tmbspg4/exp.json");
  EXPECT_EQ(exp["ds_config"], experiment.ds_config);
  EXPECT_EQ(exp["result_dir"], results("z1_gas2_tmbspg4"));
  EXPECT_EQ(exp["ds_config_path"], results("z1_gas2_tmbspg4/ds_config.json"));
  EXPECT_EQ(exp["recompute"], "block");
  EXPECT_EQ(exp["written_by"], "dstune-mpi");
  EXPECT_EQ(results_json("z1_gas2_tmbspg4/ds_config.json"), experiment.ds_config);
}

TEST_F(ResultsFolderTest, WritesTheWinnersMemoryBesideItsConfig) {
  folder_.write_experiment(test::sample_experiment("winner"));
  folder_.write_memory("winner", {.categories = {"parameters"},
                                  .memories = {{"device", {{1 << 20}, {1 << 20}}}},
                                  .parts = {{"update", "", 0}}});
  EXPECT_THAT(read_file(results("winner/memory.txt")), testing::HasSubstr("P parameters"));
}

TEST_F(ResultsFolderTest, ThePageHoldsItsDataAndTheCommand) {
  const test::Concluded optimum = optimum_of(test::sample_record("a"));
  folder_.write_optimal(optimum.recommendation(), std::nullopt);
  folder_.write_environment({{"version", "0.5"}});
  folder_.write_page(optimum, {.is_running = true});
  const std::string data = read_file(results("report.json"));
  EXPECT_THAT(read_file(results("report.html")),
              testing::HasSubstr(">" + data.substr(0, data.size() - 1) + "</script>"));
  const json::Value shown = json::Value::parse(data);
  EXPECT_EQ(shown["answer"]["command"].get<std::string>() + "\n",
            read_file(results("cmd_optimal.txt")));
  EXPECT_EQ(shown["written_by"], "dstune-mpi 0.5");
  EXPECT_EQ(shown["state"]["is_running"], true);
}

TEST_F(ResultsFolderTest, DeletesThePictureOfAnEarlierRelease) {
  OwnFiles files(temporary_ / "results");
  files.begin();
  files.make_folder("winner");
  files.write("winner/memory.svg", "<svg/>", Durability::rename_only);
  folder_.delete_previous();
  EXPECT_FALSE(fs::exists(results("winner")));
}

TEST_F(ResultsFolderTest, WritesAnExperimentAgainAndItsMetrics) {
  const Record record = test::sample_record("a");
  folder_.write_experiment(record.experiment);
  folder_.write_experiment(record.experiment);
  folder_.write_metrics(record, Metric::latency);
  EXPECT_EQ(results_json("a/metrics.json"), metrics_json(record, Metric::latency));
  EXPECT_EQ(everything(), (std::set<std::string>{
                              "results", "exps", "exps/.dstune-manifest.jsonl", "exps/a.json",
                              "results/.dstune-manifest.jsonl", "results/a", "results/a/exp.json",
                              "results/a/ds_config.json", "results/a/metrics.json"}));
}

TEST_F(ResultsFolderTest, WritesTheTargetsTimeOfAnExperiment) {
  const Record record = test::sample_record("a");
  folder_.write_experiment(record.experiment);
  folder_.write_metrics(record, Metric::throughput, TargetTime{8, 2, {1}}, MetricValue{8, 7, 9});
  EXPECT_EQ(results_json("a/metrics.json"),
            metrics_json(record, Metric::throughput, TargetTime{8, 2, {1}}, MetricValue{8, 7, 9}));
}

TEST_F(ResultsFolderTest, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"", ".", "..", "../a", "a/b", ".hidden"})
    EXPECT_THROW(folder_.write_experiment(test::sample_experiment(name)), LogicError) << name;
}

TEST_F(ResultsFolderTest, WritesTheOptimum) {
  Record best = test::sample_record("z1_gas2_tmbspg4");
  best.experiment.ds_config["autotuning"] = {{"enabled", true}};
  best.experiment.ds_config["dstune"] = json::Value::object();
  best.experiment.ds_config["optimizer"] = {{"params", {{"lr", "auto"}}}};
  test::Draft report;
  report.rows = {test::row_of(best)};
  report.user_runs = {{0, "/own/metrics.json", 1.0, 0}};
  report.calibration = TimeCalibration{{1, 2, 1}, {0, 0.5}};
  report.memory_offset_bytes = 5;
  folder_.write_environment({{"deepspeed", {{"version", "0.19.8"}, {"source", "a test"}}}});
  folder_.write_optimal(test::Concluded(report).recommendation(),
                        UserCommand{"t.py --bs 1 --ds $CONFIG",
                                    {{"train_micro_batch_size_per_gpu", "--bs"}, {"lr", "--lr"}}});
  EXPECT_EQ(results_json("optimal.json")["deepspeed_version"], "0.19.8");
  const json::Value config = results_json("ds_config_optimal.json");
  EXPECT_FALSE(config.contains("autotuning"));
  EXPECT_FALSE(config.contains("dstune"));
  EXPECT_EQ(config["optimizer"]["params"]["lr"], "auto");
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"], 4);

  const std::string command = "deepspeed --num_nodes 1 --num_gpus 2 t.py --bs 4 --ds " +
                              fs::absolute(results("ds_config_optimal.json")).string();
  EXPECT_EQ(read_file(results("cmd_optimal.txt")), command + "\n");
  const json::Value optimal = results_json("optimal.json");
  EXPECT_EQ(optimal["name"], "z1_gas2_tmbspg4");
  EXPECT_EQ(optimal["metric"], "throughput");
  EXPECT_DOUBLE_EQ(optimal["value"], 16.0);
  const double factor = std::exp(Scoreboard().half_width_of_run());
  EXPECT_DOUBLE_EQ(optimal["ci_low"], 16 / factor);
  EXPECT_DOUBLE_EQ(optimal["ci_high"], 16 * factor);
  EXPECT_EQ(optimal["calibration"], (json::Value{{"scale", 2.0},
                                                 {"costs_s",
                                                  {{"optimizer_step", 0.0},
                                                   {"module_call", 0.5},
                                                   {"gradient_hook", 0.0},
                                                   {"gathering_hook", 0.0},
                                                   {"sub_group", 0.0},
                                                   {"offload_copy", 0.0},
                                                   {"stage_2_byte", 0.0},
                                                   {"recompute", 0.0},
                                                   {"collective_call",
                                                    {{"all_reduce", 0.0},
                                                     {"reduce", 0.0},
                                                     {"reduce_scatter", 0.0},
                                                     {"all_gather", 0.0},
                                                     {"all_gather_ahead", 0.0},
                                                     {"all_to_all", 0.0}}},
                                                   {"small_call_byte", 0.0},
                                                   {"communicated_byte", 0.0},
                                                   {"link_byte", 0.0}}},
                                                 {"memory_offset_bytes", 5},
                                                 {"runs",
                                                  {{{"name", "z1_gas2_tmbspg4"},
                                                    {"path", "/own/metrics.json"},
                                                    {"step_s", 1.0},
                                                    {"measured_s", 0.5},
                                                    {"fitted_s", 1.0}}}}}));
  EXPECT_EQ(optimal["num_gpus"], 2);
  EXPECT_EQ(optimal["num_gpus_per_node"], 2);
  EXPECT_EQ(optimal["num_nodes"], 1);
  EXPECT_EQ(optimal["sequence_length"], 1024);
  EXPECT_EQ(optimal["recompute"], "block");
  EXPECT_EQ(optimal["label"], "calibrated");
  EXPECT_EQ(optimal["command"], command);
}

TEST_F(ResultsFolderTest, NamesAPlaceholderWithoutTrainingCommand) {
  folder_.write_optimal(optimum_of(test::sample_record("a")).recommendation(), std::nullopt);
  EXPECT_EQ(read_file(results("cmd_optimal.txt")),
            "deepspeed --num_nodes 1 --num_gpus 2 your_training_script.py --deepspeed_config " +
                results("ds_config_optimal.json") + "\n");
}

TEST_F(ResultsFolderTest, WritesScriptsForTheBestAndTheUsersOwn) {
  test::Draft report;
  for (const char* name : {"own", "fourth", "third", "best", "second"})
    report.rows.push_back(test::row_of(test::sample_record(name)));
  const double step_s[] = {9, 4, 3, 1, 2};
  for (std::size_t i = 0; i < report.rows.size(); ++i)
    report.rows[i].record = test::sample_record(report.rows[i].planned.experiment.name, step_s[i]);
  report.baseline = 0;
  folder_.write_verification(test::Concluded(report).recommendation(),
                             UserCommand{"train.py $CONFIG"});
  for (const char* name : {"verify.sbatch", "verify.pbs"}) {
    const std::string script = read_file(results(name));
    std::size_t at = 0;
    for (const char* run : {"best", "second", "third", "own"}) {
      at = script.find(std::string("\nrun ") + run + " 1 2 ", at);
      EXPECT_NE(at, std::string::npos) << name << ": " << run;
    }
    EXPECT_EQ(script.find("fourth"), std::string::npos);
    EXPECT_NE(script.find("VERIFY_DIR=" + results("verify\n")), std::string::npos);
  }
  report.baseline = 3;
  folder_.write_verification(test::Concluded(report).recommendation(),
                             UserCommand{"train.py $CONFIG"});
  const std::string script = read_file(results("verify.sbatch"));
  EXPECT_NE(script.find("Number 1 of what was measured, and your own"), std::string::npos);
  EXPECT_EQ(script.find("\nrun own"), std::string::npos);
}

TEST_F(ResultsFolderTest, NothingIsRecommendedWhereNothingGaveAResult) {
  test::Draft report;
  report.rows = {test::row_of(test::failed_record("a", Status::failed, "no"))};
  report.baseline = 0;
  EXPECT_FALSE(test::Concluded(report).answer.recommendation) << "so that no script is written";
}

TEST_F(ResultsFolderTest, WritesSummaryAndTable) {
  test::Draft report;
  report.rows = {test::row_of(test::sample_record("a")),
                 test::row_of(test::failed_record("b", Status::failed, "said \"no\", twice")),
                 test::planned_row("c", PlanStatus::infeasible, "too\nlarge"),
                 test::planned_row("d", PlanStatus::pruned, "twin")};
  const test::Concluded concluded(report);
  folder_.write_summary(concluded);
  EXPECT_EQ(read_file(results("summary.txt")),
            headline_text(concluded, folder_.path()) + "\n" + summary_text(concluded));
  const double factor = std::exp(concluded.scoreboard.half_width_of_run());
  const std::string interval = fmt::format("{},{}", 32 / factor, 32 * factor);
  EXPECT_EQ(
      read_file(results("results.csv")),
      "name,status,reason,num_gpus,num_nodes,zero_stage,micro_batch,accumulation_steps,"
      "train_batch_size,recompute,metric,value,ci_low,ci_high,throughput,latency_us,flops_per_gpu,"
      "steps,warmup_steps,peak_memory_bytes,process_memory_bytes,joules_per_sample,overhead_s,"
      "attempt,world_ranks,"
      "started_at,finished_at,predicted_throughput,prediction_error,predicted_peak_memory_bytes,"
      "predicted_target_memory_bytes,verified_status,verified_value,verified_peak_memory_bytes,"
      "changed_numerics,gpu_memory_bytes,predicted_gpu_memory_bytes,flags,pruned_because\r\n"
      "a,ok,,2,1,1,4,2,16,block,throughput,32," +
          interval +
          ",32,500000,1000000000000,5,2,1000,5000,,0.25,1,"
          "2 "
          "3,"
          "2026-01-02T03:04:05.678901Z,2026-01-02T03:04:15.000002Z,,,1000,2000,,,,,,,,\r\n"
          "b,failed,\"said \"\"no\"\", "
          "twice\",2,1,1,4,2,16,block,throughput,,,,,,,5,2,1000,5000,,0.25,"
          "1,2 3,2026-01-02T03:04:05.678901Z,2026-01-02T03:04:15.000002Z,,,1000,2000,,,,,,,,\r\n"
          "c,infeasible,\"too\nlarge\",2,1,1,4,2,16,block,throughput,,,,,,,,,,,,,,,,,,,0,0,,,,,,,,"
          "\r\n"
          "d,pruned,twin,2,1,1,4,2,16,block,throughput,,,,,,,,,,,,,,,,,,,,,,,,,,,,not_chosen\r\n");
}

TEST_F(ResultsFolderTest, SaysWhatChangesNumericsInEachResult) {
  Record record = test::sample_record("a", 0.5, 3);
  record.experiment.config.zero_quantized_weights = true;
  record.experiment.config.zero_quantized_gradients = true;
  const auto keys_with = [&](GroupShape shape) {
    record.experiment.shape = shape;
    return metrics_json(record, Metric::throughput)["changed_numerics"];
  };
  EXPECT_EQ(keys_with({1, 1}), json::Value::array()) << "nothing is gathered";
  EXPECT_EQ(keys_with({2, 1}), json::Value::array({"zero_quantized_weights"}));
  EXPECT_EQ(keys_with({2, 2}),
            json::Value::array({"zero_quantized_weights", "zero_quantized_gradients"}));

  test::Draft report;
  report.rows = {test::row_of(record)};
  folder_.write_optimal(test::Concluded(report).recommendation(), std::nullopt);
  folder_.write_summary(test::Concluded(report));
  EXPECT_EQ(results_json("optimal.json")["changed_numerics"].size(), 2U);
  EXPECT_NE(
      read_file(results("results.csv")).find(",zero_quantized_weights zero_quantized_gradients,"),
      std::string::npos);
  const std::string label =
      "changed numerics: zero_quantized_weights and zero_quantized_gradients change the losses of "
      "your training";
  EXPECT_NE(read_file(results("summary.txt")).find(label), std::string::npos);
  EXPECT_NE(read_file(results("report.json")).find("changed numerics"), std::string::npos);

  record.experiment.config.mics_shard_size = 2;
  EXPECT_EQ(keys_with({2, 2}), json::Value::array()) << "MiCS has gathers of its own";
}

TEST_F(ResultsFolderTest, WritesEnvironmentAndExitStatus) {
  folder_.write_environment({{"hosts", {"a", "b"}}});
  EXPECT_EQ(results_json("environment.json")["hosts"][1], "b");
  folder_.write_exit_status(ExitCode::stopped_early, "time limit");
  const json::Value status = results_json("exit_status.json");
  EXPECT_EQ(status["exit_code"], 75);
  EXPECT_EQ(status["reason"], "time limit");
  EXPECT_TRUE(parse_time(status["finished_at"].get<std::string>()).has_value());
}

TEST_F(ResultsFolderTest, ForgetsHowAnEarlierJobEnded) {
  folder_.forget_exit_status();
  folder_.write_exit_status(ExitCode::ok, "done");
  folder_.forget_exit_status();
  EXPECT_FALSE(std::filesystem::exists(results("exit_status.json")));
}

TEST_F(ResultsFolderTest, OthersEndTheJobOnceAndForAll) {
  folder_.forget_exit_status();
  EXPECT_FALSE(folder_.was_ended_by_others());
  EXPECT_TRUE(
      create_exit_status(folder_.exit_status_path(), ExitCode::stopped_early, "rank 0 died"));
  EXPECT_FALSE(create_exit_status(folder_.exit_status_path(), ExitCode::internal, "later"));
  EXPECT_TRUE(folder_.was_ended_by_others());
  folder_.write_exit_status(ExitCode::ok, "done");
  EXPECT_EQ(results_json("exit_status.json")["reason"], "rank 0 died") << "it has no say any more";

  folder_.forget_exit_status();
  folder_.write_exit_status(ExitCode::stopped_early, "stopping");
  folder_.write_exit_status(ExitCode::stopped_early, "stopped");
  EXPECT_FALSE(folder_.was_ended_by_others());
  EXPECT_EQ(results_json("exit_status.json")["reason"], "stopped");
  EXPECT_FALSE(create_exit_status(results("nowhere/exit_status.json"), ExitCode::ok, ""));
}

TEST_F(ResultsFolderTest, KeepsWhatOfLibrariesWasChosen) {
  const std::map<std::string, std::string> choices{{"one", "1 of 3"}, {"two", "0 of 2"}};
  std::string note;
  EXPECT_TRUE(folder_.library_choices(note).empty());
  folder_.begin();
  folder_.write_library_choices({{"one", "1 of 3"}});
  folder_.write_library_choices(choices);
  EXPECT_EQ(results_json("library_choices.json")["written_by"], "dstune-mpi");
  ResultsFolder again(temporary_ / "results", temporary_ / "exps");
  EXPECT_EQ(again.library_choices(note), choices);
  EXPECT_EQ(note, "");
}

TEST_F(ResultsFolderTest, OtherChoicesOfLibrariesAreLeftAloneAndInNobodysWay) {
  folder_.begin();
  folder_.write_library_choices({{"one", "1 of 3"}});
  const FolderNames asked{.results_dir = temporary_ / "results", .exps_dir = temporary_ / "exps"};
  const auto experiment_a = [](const std::set<std::string>& names) {
    return names.contains("a") ? std::set<std::string>{"a"} : std::set<std::string>{};
  };
  for (const std::string text : {"{\"choices\": {\"one\": \"2 of 3\"}}", "{\"written_by\"", ""}) {
    std::ofstream(results("library_choices.json")) << text;
    ResultsFolder again(temporary_ / "results", temporary_ / "exps");
    std::string note;
    EXPECT_TRUE(again.library_choices(note).empty());
    EXPECT_THAT(note, testing::HasSubstr("library_choices.json is not as dstune-mpi wrote it"));
    EXPECT_NO_THROW((void)choose_folders(asked, experiment_a, {}));
    again.begin();
    again.write_library_choices({{"two", "1 of 3"}});
    again.delete_previous();
    EXPECT_EQ(read_file(results("library_choices.json")), text);
  }
}

TEST_F(ResultsFolderTest, FullDiskLeavesThePreviousFilesWhole) {
  write_all(folder_);
  const std::string config = read_file(results("ds_config_optimal.json"));
  const std::string metrics = read_file(results("a/metrics.json"));
  const std::set<std::string> before = everything();
  const Record slower = test::sample_record("a", 1.5, 2);
  {
    const FileSizeLimit limit(16);
    EXPECT_THROW(folder_.write_optimal(optimum_of(slower).recommendation(), std::nullopt), IoError);
    EXPECT_THROW(folder_.write_metrics(slower), IoError);
    EXPECT_THROW(folder_.write_experiment(slower.experiment), IoError);
    EXPECT_THROW(folder_.write_summary({}), IoError);
  }
  EXPECT_EQ(read_file(results("ds_config_optimal.json")), config);
  EXPECT_EQ(read_file(results("a/metrics.json")), metrics);
  EXPECT_EQ(everything(), before);
}

}  // namespace
}  // namespace dstune
