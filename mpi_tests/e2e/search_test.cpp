// The main job: a tiny transformer, every stage, groups of 1, 2 and 4 on four ranks.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr double loss_tolerance = 1e-5;  ///< of fp32, across stages and rank counts
constexpr std::size_t compared_steps = 10;

class SearchTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    job_ = std::make_unique<Job>();
    Json space = transformer_space({1, 2, 4});
    space["dstune"]["training_command"] = "train.py --data /data --deepspeed_config $CONFIG";
    space["train_micro_batch_size_per_gpu"] = {1, 2};
    // Several buckets in a model of 27,000 parameters.
    space["zero_optimization"]["reduce_bucket_size"] = 5000;
    space["zero_optimization"]["allgather_bucket_size"] = 5000;
    job_->write("config.json", tiny_gpt2_config());
    job_->write("space.json", space);
    ended_ =
        std::make_unique<Ended>(job_->run({.ranks = 4, .args = {"space.json"}, .limit_s = 120}));
  }
  static void TearDownTestSuite() {
    job_.reset();
    ended_.reset();
  }
  void SetUp() override {
    ASSERT_EQ(ended_->exit_code, 0) << *ended_;
    metrics_ = all_metrics(*job_);
    ASSERT_EQ(metrics_.size(), 24);
  }

  static std::unique_ptr<Job> job_;
  static std::unique_ptr<Ended> ended_;
  std::map<std::string, Json> metrics_;
};
std::unique_ptr<Job> SearchTest::job_;
std::unique_ptr<Ended> SearchTest::ended_;

TEST_F(SearchTest, EndsWithTheTableAndTheWinner) {
  expect_exit(*job_, *ended_, 0);
  const std::string winner = job_->read_json(results + "optimal.json")["name"];
  EXPECT_THAT(ended_->out, HasSubstr(winner));
  // summary.txt begins with the lines with which the output ends; one more where the batch changes.
  const std::string summary = job_->read(results + "summary.txt");
  const std::string headline = summary.substr(0, summary.find("\n\n") + 1);
  const bool changes = job_->read_json(results + "optimal.json").contains("global_batch");
  EXPECT_EQ(std::ranges::count(headline, '\n'), changes ? 5 : 4);
  EXPECT_EQ(ended_->out, summary.substr(headline.size() + 1) + "\n" + headline);
  for (const char* part : {"tuning_space", "num_experiments", "best_metric_val", "best_exp_name",
                           "Total number of experiments: 24"}) {
    EXPECT_THAT(ended_->out, HasSubstr(part)) << part;
  }
  EXPECT_THAT(ended_->out, Not(HasSubstr("\x1b"))) << "no terminal, no colour";
  EXPECT_THAT(ended_->err, HasSubstr(winner)) << "progress goes to stderr";
}

TEST_F(SearchTest, TimesTheWholeJob) {
  const auto events = journal(*job_);
  std::string last;
  for (const Json& event : events)
    if (event.contains("finished_at")) last = std::max<std::string>(last, event["finished_at"]);
  const std::string words = "Tuning completed in ";
  const std::size_t at = ended_->out.find(words);
  ASSERT_NE(at, std::string::npos);
  const std::string elapsed = "T0" + ended_->out.substr(at + words.size(), 14);
  EXPECT_GE(seconds_between("T00:00:00.000000", elapsed),
            seconds_between(events.front()["time"], last))
      << "the machine is timed before the first experiment";
}

TEST_F(SearchTest, RunsEveryMemberUnderItsName) {
  for (const int size : {1, 2, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int micro_batch : {1, 2}) {
        const std::string name = short_name(stage, micro_batch) + "_ng" + std::to_string(size);
        ASSERT_TRUE(metrics_.contains(name)) << name;
        EXPECT_EQ(metrics_[name]["status"], "ok") << metrics_[name]["reason"];
        EXPECT_EQ(ranks_of(metrics_[name]).size(), size);
        const Json config = job_->read_json(results + name + "/ds_config.json");
        EXPECT_EQ(config["zero_optimization"]["stage"], stage);
        EXPECT_EQ(config["train_micro_batch_size_per_gpu"], micro_batch);
        EXPECT_EQ(config["train_batch_size"], micro_batch * size);
        const Json description = job_->read_json(results + name + "/exp.json");
        EXPECT_EQ(description["name"], name);
        EXPECT_EQ(description["num_gpus"], size);
        EXPECT_EQ(description["ds_config"], config);
        EXPECT_EQ(job_->read_json("autotuning_exps/" + name + ".json")["ds_config"], config);
      }
    }
  }
}

TEST_F(SearchTest, WritesAPureDeepSpeedConfig) {
  const Json config = job_->read_json(results + "ds_config_optimal.json");
  const Json optimal = job_->read_json(results + "optimal.json");
  EXPECT_FALSE(config.contains("autotuning"));
  EXPECT_FALSE(config.contains("dstune"));
  EXPECT_EQ(config["gradient_accumulation_steps"], 1);
  EXPECT_EQ(config["train_batch_size"].get<int>(),
            config["train_micro_batch_size_per_gpu"].get<int>() * optimal["num_gpus"].get<int>());
  EXPECT_EQ(config["optimizer"]["params"]["lr"], 0.005);
  EXPECT_EQ(config["zero_optimization"]["reduce_bucket_size"], 5000);
  for (const char* key : {"name", "metric", "value", "ci_low", "ci_high", "num_gpus", "recompute",
                          "label", "command"}) {
    EXPECT_TRUE(optimal.contains(key)) << key;
  }
  EXPECT_EQ(optimal["metric"], "throughput");
  EXPECT_EQ(optimal["label"], "proxy");
  const std::string command = job_->read(results + "cmd_optimal.txt");
  EXPECT_THAT(command, HasSubstr("train.py"));
  EXPECT_THAT(command, HasSubstr("ds_config_optimal.json"));
  EXPECT_THAT(command, Not(HasSubstr("$CONFIG")));
}

TEST_F(SearchTest, NamesTheBest) {
  const Json optimal = job_->read_json(results + "optimal.json");
  const Json validation = job_->read_json(results + "validation.json");
  EXPECT_EQ(validation["winner"], optimal["name"]);
  if (!validation["done"].get<bool>()) {
    for (const auto& [name, metrics] : metrics_)
      EXPECT_LE(metrics["value"].get<double>(), optimal["value"].get<double>()) << name;
    EXPECT_EQ(metrics_[optimal["name"]]["value"], optimal["value"]);
    return;
  }
  bool is_finalist = false;
  double most = 0;
  for (const Json& finalist : validation["finalists"]) {
    EXPECT_GE(finalist["runs"].size(), 1U);
    for (const Json& run : finalist["runs"]) {
      EXPECT_EQ(run["alone"], true);
      // Every rank has run its operations before.
      const int most_warmup =
          std::getenv("DSTUNE_EMULATED_GPUS") == nullptr ? 1 : 2;  // one records
      if (finalist["num_gpus"] == 4) {
        EXPECT_LE(run["warmup_steps"], most_warmup);
      }
    }
    most = std::max(most, finalist.value("probability_best", 0.0));
    if (finalist["name"] != optimal["name"]) continue;
    is_finalist = true;
    EXPECT_EQ(finalist["value"], optimal["value"]);
    EXPECT_LE(optimal["ci_low"], optimal["value"]);
    // Steps that vary by more than their mean leave the interval without an upper end.
    if (optimal["ci_high"].is_null()) continue;
    EXPECT_GE(optimal["ci_high"], optimal["value"]);
    // Noise of the device does not matter where the host's costs hide its time.
    if (std::getenv("DSTUNE_EMULATED_GPUS") == nullptr) {
      EXPECT_LT(optimal["ci_low"], optimal["ci_high"]);
    }
  }
  EXPECT_TRUE(is_finalist);
  EXPECT_GE(validation["finalists"].size(), 2U);
  // The baseline is the answer where nothing is clearly better.
  if (optimal["name"] != optimal["baseline"]["name"]) {
    EXPECT_GE(optimal["probability_best"].get<double>(), most - 0.02);
  }
}

TEST_F(SearchTest, WritesDeepSpeedsMetricsAndItsOwn) {
  for (const auto& [name, metrics] : metrics_) {
    for (const char* key : {"fwd", "bwd", "step", "latency", "FLOPS_per_gpu", "throughput"}) {
      ASSERT_TRUE(metrics[key].is_number()) << name << ' ' << key;
      EXPECT_GT(metrics[key].get<double>(), 0) << name << ' ' << key;
    }
    EXPECT_EQ(metrics["rank"], 0);
    EXPECT_EQ(metrics["attempt"], 1);
    const auto step_times_s = metrics["step_times_s"].get<std::vector<double>>();
    const std::size_t warmup_steps = metrics["warmup_steps"];
    EXPECT_GE(warmup_steps, 1);
    ASSERT_GE(step_times_s.size(), warmup_steps + 5);
    double timed_s = 0;
    for (std::size_t i = warmup_steps; i < step_times_s.size(); ++i) timed_s += step_times_s[i];
    timed_s /= static_cast<double>(step_times_s.size() - warmup_steps);
    // DeepSpeed's latency is in µs; its throughput counts the group's samples.
    EXPECT_NEAR(metrics["latency"].get<double>() * 1e-6 / timed_s, 1, 1e-9) << name;
    const Json config = job_->read_json(results + name + "/ds_config.json");
    EXPECT_NEAR(
        metrics["throughput"].get<double>() * timed_s / config["train_batch_size"].get<double>(), 1,
        1e-9)
        << name;
    EXPECT_LE(metrics["ci_low"].get<double>(), metrics["value"].get<double>());
    // Steps that vary by more than their mean leave the interval without an upper end.
    if (!metrics["ci_high"].is_null()) {
      EXPECT_GE(metrics["ci_high"].get<double>(), metrics["value"].get<double>());
    }
    EXPECT_EQ(metrics["group"]["hosts"].size(), ranks_of(metrics).size());
    EXPECT_TRUE(metrics["overhead_s"].is_object());
    EXPECT_FALSE(metrics["overhead_s"].empty());
    EXPECT_GT(metrics["peak_memory_bytes"]["process"].get<std::int64_t>(), 0);
  }
}

/// The sum of numbers in an object, those of objects in it included.
double sum_of(const Json& object) {
  double sum = 0;
  for (const auto& [name, value] : object.items())
    sum += value.is_object() ? sum_of(value) : value.get<double>();
  return sum;
}

TEST_F(SearchTest, RanksByTheTargetsTimeAndSaysWhatItIsMadeOf) {
  const Json optimal = job_->read_json(results + "optimal.json");
  const bool network_costs = sum_of(optimal["target"]["costs_s"]["collective_call"]) > 0;
  for (const auto& [name, metrics] : metrics_) {
    const Json& target = metrics["target"];
    EXPECT_EQ(target["throughput"], metrics["value"]) << name;
    const Json config = job_->read_json(results + name + "/ds_config.json");
    const double target_s =
        target["scale"].get<double>() * metrics["latency"].get<double>() * 1e-6 +
        sum_of(target["costs_s"]);
    EXPECT_NEAR(config["train_batch_size"].get<double>() / target_s,
                target["throughput"].get<double>(), 1e-6 * target["throughput"].get<double>())
        << name;
    EXPECT_TRUE(metrics["predicted"]["target_throughput"].is_number()) << name;
    const bool is_alone = ranks_of(metrics).size() == 1;
    EXPECT_EQ(sum_of(target["costs_s"]["collective_call"]) > 0, network_costs && !is_alone) << name;
  }
  EXPECT_GT(optimal["measured"]["value"].get<double>(), 0);
  EXPECT_NE(optimal["measured"]["value"], optimal["value"]);
  EXPECT_FALSE(optimal["target"]["source"].get<std::string>().empty());
  EXPECT_FALSE(optimal["target"]["machine"].get<std::string>().empty());
  EXPECT_THAT(ended_->out, HasSubstr("measured here"));
}

TEST_F(SearchTest, UsesExactlyTheMemoryThatWasPlanned) {
  for (const auto& [name, metrics] : metrics_) {
    EXPECT_EQ(metrics["peak_memory_bytes"]["total"], metrics["predicted"]["peak_memory_bytes"])
        << name << ' ' << metrics["peak_memory_bytes"];
    EXPECT_GT(metrics["predicted"]["target_memory_bytes"].get<std::int64_t>(), 0) << name;
  }
}

TEST_F(SearchTest, TrainsTheSameWhateverTheStageAndTheGroup) {
  std::map<int, std::pair<std::string, std::vector<double>>> first_of_batch;
  for (const auto& [name, metrics] : metrics_) {
    auto losses = metrics["losses"].get<std::vector<double>>();
    ASSERT_GE(losses.size(), 5) << name;
    ASSERT_EQ(losses.size(), metrics["step_times_s"].size());
    losses.resize(std::min(losses.size(), compared_steps));
    EXPECT_NEAR(losses.front(), std::log(64), 0.1) << "near a uniform guess: " << name;
    // The clock decides how many steps there are, and each draws its tokens anew.
    EXPECT_LT((losses[3] + losses[4]) / 2, losses[0]) << name;

    const int batch = job_->read_json(results + name + "/ds_config.json")["train_batch_size"];
    const auto& [other_name, others] =
        first_of_batch.try_emplace(batch, name, losses).first->second;
    for (std::size_t step = 0; step < std::min(losses.size(), others.size()); ++step) {
      EXPECT_NEAR(losses[step] / others[step], 1, loss_tolerance)
          << name << " and " << other_name << ", step " << step;
    }
  }
  EXPECT_EQ(first_of_batch.size(), 4);  // 1, 2, 4 and 8 samples
}

TEST_F(SearchTest, UsesNoRankTwiceAtOnceAndAllOfThem) {
  expect_no_rank_used_twice(metrics_);
  std::set<int> used;
  for (const auto& [name, metrics] : metrics_) used.merge(ranks_of(metrics));
  EXPECT_EQ(used, (std::set<int>{0, 1, 2, 3}));
}

TEST_F(SearchTest, WritesTheTableTheJournalAndTheEnvironment) {
  const auto table = results_table(*job_);
  EXPECT_EQ(table.size(), 24);
  for (const auto& [name, metrics] : metrics_) {
    ASSERT_TRUE(table.contains(name)) << name;
    EXPECT_EQ(table.at(name).at("status"), "ok");
    EXPECT_DOUBLE_EQ(std::stod(table.at(name).at("throughput")),
                     metrics["throughput"].get<double>());
  }
  const auto events = journal(*job_);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front()["kind"], "job_started");
  EXPECT_EQ(events.back()["kind"], "job_finished");
  EXPECT_EQ(names_of(events, "started").size(), 24);
  EXPECT_EQ(names_of(events, "finished").size(), 24);
  EXPECT_TRUE(job_->read_json(results + "environment.json").is_object());
  for (const auto& [name, text] : job_->contents())
    EXPECT_THAT(name, Not(HasSubstr(".tmp"))) << "a temporary file was left: " << name;
}

TEST_F(JobTest, PrintsExactlyOneObject) {
  job_.write("space.json", synthetic_space({1, 2}, {1, 2, 3}, 0.001));
  const Ended ended = run({"--format", "json"});
  expect_exit(job_, ended, done);
  const Json shown = printed(ended);
  EXPECT_EQ(shown["best"]["name"], short_name(0, 3) + "_ng2");
  EXPECT_EQ(shown["best"]["num_gpus"], 2);
  EXPECT_EQ(shown["best"]["metric"], "throughput");
  EXPECT_NEAR(shown["best"]["value"].get<double>(), 6000, 60);
  for (const char* key : {"ci_low", "ci_high", "label"}) EXPECT_TRUE(shown["best"].contains(key));
  EXPECT_EQ(shown["counts"]["ok"], 6);
  EXPECT_EQ(shown["exit_code"], 0);
}

TEST_F(JobTest, HasAWinnerWhereStepsTakeNoTime) {
  job_.write("space.json", synthetic_space({1, 2}, {1, 2}));
  expect_exit(job_, run(), done);
  EXPECT_TRUE(job_.exists(results + "ds_config_optimal.json"));
}

TEST_F(JobTest, IsQuietWhereAsked) {
  job_.write("space.json", synthetic_space({1}, {1, 2}, 0.001));
  // The backend of GPUs would warn.
  const Ended ended = run({"--quiet", "--backend", "cpu"});
  expect_exit(job_, ended, done);
  // An MPI may say something of the network.
  EXPECT_EQ(count_of(ended.err, "dstune"), 0) << ended;
}

}  // namespace
}  // namespace dstune::e2e
