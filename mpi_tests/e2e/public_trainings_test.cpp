// Trainings on GPUs that others reported, each planned as its source describes it: does the plan
// say which of them ran out of memory? docs/figures/memory.md has the tables, whose rows this test
// compares; scripts/figures.py --measure writes them anew, by the file that DSTUNE_FIGURES names.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "results.hpp"

namespace dstune::e2e {
namespace {

constexpr double gib = 1 << 30;

/// A training as it was reported, and what the plan says of it.
struct Row {
  Json reported, predicted;
  [[nodiscard]] std::string name() const { return reported["name"]; }
  [[nodiscard]] std::string outcome() const { return reported["outcome"]; }
  [[nodiscard]] std::string verdict() const { return predicted["verdict"]; }
  [[nodiscard]] bool is_judged() const {
    return reported["described"].get<bool>() && outcome() != "oom_host" &&
           reported["space"]["dstune"]["device_memory"].is_number();
  }
  /// Found after the constants had been fixed.
  [[nodiscard]] bool is_later() const { return reported.value("later", false); }
  [[nodiscard]] double gib_of(const char* key) const { return predicted[key].get<double>() / gib; }
};

class PublicTrainingsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::ifstream file(DSTUNE_E2E_PUBLIC_TRAININGS);
    const Json all = Json::parse(file);
    Job job;
    for (const Json& one : all["trainings"]) {
      Json space = one["space"];
      const std::string model = one["model"];
      space["dstune"]["model"] = {{"hf_config", "model.json"}};
      job.write("model.json", all["models"][model]);
      job.write("space.json", space);
      std::vector<std::string> args = {"plan",    "space.json",       "--format",
                                       "json",    "--gpus-per-node",  one["gpus_per_node"].dump(),
                                       "--nodes", one["nodes"].dump()};
      if (one.contains("deepspeed"))
        args.insert(args.end(), {"--deepspeed-version", one["deepspeed"]});
      const Ended ended = job.run({.ranks = 0, .args = args});
      ASSERT_TRUE(ended.exit_code == done || ended.exit_code == nothing_feasible) << ended;
      rows().push_back({one, printed(ended)["experiments"].at(0)["predicted"]});
    }
  }

  static std::vector<Row>& rows() {
    static std::vector<Row> all;
    return all;
  }
  static const Row& row(const std::string& name) {
    for (const Row& one : rows())
      if (one.name() == name) return one;
    throw std::runtime_error("no training " + name);
  }
};

/// A verdict at the edge counts for half.
double share_called_oom(const Row& row) {
  return row.verdict() == "does_not_fit" ? 1 : row.verdict() == "edge" ? 0.5 : 0;
}

/// The sums of the judged rows.
struct Score {
  int ran_out = 0, ran = 0;
  double found = 0, false_alarms = 0;
};

Score score_of(const std::vector<Row>& rows, bool are_later) {
  Score score;
  for (const Row& one : rows) {
    if (!one.is_judged() || one.is_later() != are_later) continue;
    const bool is_oom = one.outcome() == "oom";
    (is_oom ? score.ran_out : score.ran) += 1;
    (is_oom ? score.found : score.false_alarms) += share_called_oom(one);
  }
  return score;
}

TEST_F(PublicTrainingsTest, FindsWhatRunsOut) {
  const Score score = score_of(rows(), false);
  EXPECT_EQ(score.ran_out, 13);
  EXPECT_EQ(score.ran, 29);
  EXPECT_GE(score.found, 11);
  EXPECT_LE(score.false_alarms, 1);
}

TEST_F(PublicTrainingsTest, FindsWhatRunsOutWhereNoConstantKnewOfIt) {
  const Score score = score_of(rows(), true);
  EXPECT_EQ(score.ran_out, 9);
  EXPECT_EQ(score.ran, 9);
  EXPECT_GE(score.found, 8);
  EXPECT_LE(score.false_alarms, 0.5);
}

TEST_F(PublicTrainingsTest, IsNearThePeaksOfTensors) {
  for (const char* const name : {"dsex-bf16master-base", "dsex-bf16master-bf16"}) {
    const Row& one = row(name);
    EXPECT_NEAR(one.gib_of("target_allocated_bytes"), one.reported["seen"]["gib"],
                0.05 * one.reported["seen"]["gib"].get<double>())
        << name;
  }
}

TEST_F(PublicTrainingsTest, MovesStatesByWholeGroupsOfParameters) {
  const double step = row("ds4775-2.7b-ratio0.5").gib_of("target_host_memory_bytes_per_node") -
                      row("ds4775-2.7b-ratio0.4").gib_of("target_host_memory_bytes_per_node");
  EXPECT_NEAR(step, 30.1, 0.2 * 30.1);
}

/// GiB, with a digit more where they are few.
Json gib_number(double value) {
  if (value >= 99.95) return std::llround(value);
  return std::round(10 * value) / 10;
}

/// Tables for scripts/figures.py, a row a training: the verdicts, and peaks that the source saw.
struct Tables {
  Json verdicts = Json::array(), peaks = Json::array(), scores = Json::array();
};

Tables tables_of(const std::vector<Row>& rows) {
  Tables tables;
  for (const Row& one : rows) {
    const Json& reported = one.reported;
    const std::string gpus =
        fmt::format("{} × {}", reported["nodes"].get<int>(), reported["gpus_per_node"].get<int>());
    const char* const use = !one.is_judged() ? "shown" : one.is_later() ? "later" : "judged";
    const std::string ended = one.outcome() == "fits"  ? "ran"
                              : one.outcome() == "oom" ? "ran out"
                                                       : "host ran out";
    const Json& memory = reported["space"]["dstune"]["device_memory"];
    const double host = one.gib_of("target_host_memory_bytes_per_node");
    const bool is_wrong = one.is_judged() && one.verdict() != "edge" &&
                          (one.outcome() == "oom") != (one.verdict() == "does_not_fit");
    tables.verdicts.push_back({one.name(), gpus, use, ended,
                               one.verdict() + (is_wrong ? " (wrong)" : ""),
                               gib_number(one.gib_of("target_memory_bytes")),
                               memory.is_number() ? gib_number(memory.get<double>() / gib) : Json(),
                               host > 0 ? gib_number(host) : Json()});
    const Json& seen = reported["seen"];
    if (seen.contains("gib"))
      tables.peaks.push_back({one.name(), gib_number(seen["gib"]), seen["read"],
                              gib_number(one.gib_of("target_allocated_bytes")),
                              gib_number(one.gib_of("target_memory_bytes"))});
  }
  for (const bool are_later : {false, true}) {
    const Score score = score_of(rows, are_later);
    tables.scores.push_back({are_later ? "later" : "judged", score.ran_out, score.found, score.ran,
                             score.false_alarms});
  }
  return tables;
}

/// The rows that a table of the manual has.
Json rows_in_the_manual(const char* table) {
  std::ifstream file(std::string(DSTUNE_E2E_FIGURES) + "/" + table + ".json");
  EXPECT_TRUE(file.good()) << table;
  return Json::parse(file)["rows"];
}

TEST_F(PublicTrainingsTest, StandInTheManual) {
  const Tables tables = tables_of(rows());
  if (const char* const path = std::getenv("DSTUNE_FIGURES"); path != nullptr) {
    const auto table = [](const char* name, const std::vector<std::string>& columns,
                          const Json& table_rows) {
      return Json{{"name", name}, {"columns", columns}, {"rows", table_rows}};
    };
    std::ofstream(path) << Json{
        {"tables",
         {table("verdicts", {"training", "gpus", "use", "ended", "plan", "needs", "device", "host"},
                tables.verdicts),
          table("peaks", {"training", "seen", "read", "tensors", "needs"}, tables.peaks),
          table("scores", {"use", "ran_out", "found", "ran", "alarms"}, tables.scores)}}};
    return;
  }
  const char* const how = "scripts/figures.py --measure writes the table anew";
  EXPECT_EQ(rows_in_the_manual("memory-trainings"), tables.verdicts) << how;
  EXPECT_EQ(rows_in_the_manual("memory-peaks"), tables.peaks) << how;
}

}  // namespace
}  // namespace dstune::e2e
