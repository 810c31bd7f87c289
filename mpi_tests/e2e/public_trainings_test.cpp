// Trainings on GPUs that others reported, each planned as its source describes it: does the plan
// say which of them ran out of memory? docs/figures/fidelity.md has the table, which this test
// compares; DSTUNE_UPDATE_GOLDEN=1 writes it anew.
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
constexpr const char* begin_mark = "<!-- public trainings: generated from here on -->\n";
constexpr const char* end_mark = "<!-- public trainings: up to here -->\n";

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

std::string number(double value) {
  return fmt::format("{:.{}f}", value, value < 100 ? 1 : 0);
}

/// The table for docs/figures/fidelity.md.
std::string table_of(const std::vector<Row>& rows) {
  std::string table =
      "| training | GPUs | reported | verdict | needs, of (GiB) | seen (GiB) | host (GiB) |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Row& one : rows) {
    const Json& reported = one.reported;
    const Json& seen = reported["seen"];
    const Json& memory = reported["space"]["dstune"]["device_memory"];
    const std::string of = memory.is_number() ? number(memory.get<double>() / gib) : "?";
    const double host = one.gib_of("target_host_memory_bytes_per_node");
    const std::string peak =
        seen.contains("gib")
            ? fmt::format("{} {}; {}", number(seen["gib"]), seen["read"].get<std::string>(),
                          number(one.gib_of("target_allocated_bytes")))
            : "";
    table += fmt::format(
        "| {}{}{} | {} × {} | {} | {}{} | {} of {} | {} | {} |\n", one.name(),
        one.is_later() ? " (later)" : "", one.is_judged() ? "" : " (not judged)",
        reported["nodes"].get<int>(), reported["gpus_per_node"].get<int>(), one.outcome(),
        one.verdict(),
        one.is_judged() && (one.outcome() == "oom") != (share_called_oom(one) > 0.5)
            ? one.verdict() == "edge" ? "" : " (wrong)"
            : "",
        number(one.gib_of("target_memory_bytes")), of, peak, host > 0 ? number(host) : "");
  }
  return table;
}

TEST_F(PublicTrainingsTest, StandInTheManual) {
  const std::string path = DSTUNE_E2E_FIDELITY;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = text.find(begin_mark), end = text.find(end_mark);
  ASSERT_NE(begin, text.npos);
  ASSERT_NE(end, text.npos);
  const std::size_t first = begin + std::string(begin_mark).size();
  const std::string table = "\n" + table_of(rows()) + "\n";
  if (std::getenv("DSTUNE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text.substr(0, first) << table << text.substr(end);
    return;
  }
  EXPECT_EQ(text.substr(first, end - first), table)
      << "DSTUNE_UPDATE_GOLDEN=1 writes the table anew";
}

}  // namespace
}  // namespace dstune::e2e
