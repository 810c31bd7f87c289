#include "dstune/report/dry_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace dstune {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t gib = 1LL << 30;

DryRun sample() {
  DryRun plan;
  plan.experiments = {
      test::planned_row("z1_gas1_tmbspg4", PlanStatus::planned, "").planned,
      test::planned_row("z1_gas1_tmbspg64", PlanStatus::infeasible,
                        "needs 9.00 GiB here (activations 8.00 GiB, parameters "
                        "1.00 GiB) and 12.0 GiB in your training (logits 12.0 GiB), but the device "
                        "has 8.00 GiB")
          .planned,
      test::planned_row("twin", PlanStatus::pruned, "runs exactly as z1_gas1_tmbspg4").planned,
      test::planned_row("z2", PlanStatus::planned, "").planned};
  const auto predict = [](PlannedExperiment& planned, std::int64_t bytes, std::int64_t target) {
    Prediction& predicted = planned.predicted;
    predicted.peak_memory_bytes = bytes;
    predicted.target_memory_bytes = target;
    predicted.categories = {{"activations", bytes - 1000}, {"parameters", 1000}, {"staging", 0}};
    predicted.ranks = {{0, planned.experiment.shape.size() - 1, bytes, predicted.categories}};
  };
  predict(plan.experiments[0], gib, 2 * gib);
  predict(plan.experiments[1], 9 * gib, 12 * gib);
  predict(plan.experiments[3], 100 * gib, 2 * gib);
  plan.experiments[3].experiment.shape = {4, 2};
  plan.total = 4;
  plan.planned = 2;
  plan.infeasible = plan.pruned = 1;
  plan.experiments[2].prune_kind = PruneKind::twin;
  plan.prune_counts = {{PruneKind::twin, 1}};
  plan.device_memory_bytes = 8 * gib;
  return plan;
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    longest = std::max(longest, to - from);
    from = to + 1;
  }
  return longest;
}

TEST(DryRunJsonTest, HasExperimentsAndCounts) {
  const json::Value value = dry_run_json(sample());
  ASSERT_EQ(value["experiments"].size(), 4U);
  const json::Value& first = value["experiments"][0];
  EXPECT_EQ(first["name"], "z1_gas1_tmbspg4");
  EXPECT_EQ(first["num_gpus"], 2);
  EXPECT_EQ(first["status"], "planned");
  EXPECT_EQ(first["reason"], "");
  EXPECT_EQ(first["ds_config"]["train_batch_size"], 16);
  const json::Value& predicted = first["predicted"];
  EXPECT_EQ(predicted["peak_memory_bytes"], gib);
  EXPECT_EQ(predicted["categories"]["activations"], gib - 1000);
  ASSERT_EQ(predicted["ranks"].size(), 1U);
  EXPECT_EQ(predicted["ranks"][0]["ranks"], json::Value({0, 1}));
  EXPECT_EQ(predicted["ranks"][0]["peak_memory_bytes"], gib);
  EXPECT_EQ(predicted["ranks"][0]["categories"], predicted["categories"]);
  EXPECT_EQ(value["experiments"][1]["status"], "infeasible");
  EXPECT_EQ(value["counts"].dump(), R"({"planned":2,"infeasible":1,"pruned":1})");
  EXPECT_EQ(value["pruned"]["twin"], 1);
  EXPECT_EQ(value["pruned"]["not_chosen"], 0);
  EXPECT_EQ(value["experiments"][2]["pruned_because"], "twin");
  EXPECT_TRUE(value["experiments"][1]["pruned_because"].is_null());
}

TEST(DryRunJsonTest, APrunedMemberHasTheSameKeys) {
  const json::Value value = dry_run_json(sample());
  const json::Value& pruned = value["experiments"][2]["predicted"];
  for (const auto& [key, anything] : value["experiments"][0]["predicted"].items()) {
    ASSERT_TRUE(pruned.contains(key)) << key;
    EXPECT_TRUE(pruned[key].is_null()) << key;
  }
}

TEST(DryRunTextTest, BeginsWithWhatIsAssumed) {
  DryRun plan = sample();
  plan.assumptions = {"the precision is fp32", "a sample has 1024 tokens"};
  EXPECT_THAT(dry_run_text(plan), HasSubstr("varied: ranks 2, 8.\nAssumed: the precision is fp32.\n"
                                            "Assumed: a sample has 1024 tokens.\n\n"));
  EXPECT_EQ(dry_run_json(plan)["assumptions"].size(), 2U);
  EXPECT_TRUE(dry_run_json(sample())["assumptions"].is_array());
}

TEST(DryRunTextTest, IsOneLineAMemberInAPipe) {
  const std::string text = dry_run_text(sample(), {.all = true});
  EXPECT_THAT(
      text,
      HasSubstr("\n\n#  verdict       ranks    memory  built-in  name              reason\n"
                "1  planned           2  2.00 GiB  1.00 GiB  z1_gas1_tmbspg4\n"
                "   infeasible        2  12.0 GiB  9.00 GiB  z1_gas1_tmbspg64  needs 9.00 GiB here "
                "and 12.0 GiB in your training, but the device has 8.00 GiB\n"
                "   pruned            2                      twin              runs exactly as "
                "z1_gas1_tmbspg4\n"
                "2  planned     8 (2x4)  2.00 GiB   100 GiB  z2\n"
                "\n"));
  EXPECT_THAT(text, EndsWith("4 members: 2 planned, 1 infeasible, 1 pruned (1 would run exactly "
                             "like another). A rank may use 8.00 GiB.\n"));
}

TEST(DryRunTextTest, KeepsToTheWidthOfATerminal) {
  for (const std::size_t width : {80U, 100U, 120U, 200U}) {
    const std::string text = dry_run_text(sample(), {.width = width, .all = true});
    EXPECT_LE(longest_line(text), width) << text;
    for (const char* part : {"needs 9.00 GiB here", "your training", "runs exactly as"})
      EXPECT_THAT(text, HasSubstr(part)) << width;
  }
  EXPECT_THAT(dry_run_text(sample(), {.width = 100, .all = true}),
              HasSubstr("twin              runs exactly as z1_gas1_tmbspg4\n"));
}

TEST(DryRunTextTest, ShowsThePartsWhereAsked) {
  EXPECT_THAT(dry_run_text(sample()), Not(HasSubstr("activations")));
  const std::string text = dry_run_text(sample(), {.width = 100, .verbose = true});
  EXPECT_LE(longest_line(text), 100U) << text;
  EXPECT_THAT(text, HasSubstr("every rank: activations 1.00 GiB, parameters 1000 B\n"));
  EXPECT_THAT(text, HasSubstr("(logits 12.0"));
  EXPECT_THAT(text, Not(HasSubstr("staging")));
}

TEST(DryRunTextTest, SaysWhatOfAHugeSpaceIsNotListed) {
  DryRun plan = sample();
  plan.total = 1'500'000;
  plan.planned = 1'499'998;
  EXPECT_THAT(
      dry_run_text(plan),
      HasSubstr("1500000 members: 1 pruned (1 would run exactly like another), 1499999 not. The "
                "answer judges 3 of these, with some lists shortened: 2 planned, 1 "
                "infeasible."));
}

TEST(DryRunTextTest, LeavesEmptyColumnsOutAndRepeatsTheHeaderOfALongTable) {
  DryRun plan = sample();
  const DryRunStyle all{.all = true};
  for (PlannedExperiment& planned : plan.experiments) planned.predicted.target_memory_bytes = 0;
  EXPECT_THAT(dry_run_text(plan, all), Not(HasSubstr("memory ")));
  plan.experiments.front().predicted.throughput = 1234.5;
  EXPECT_THAT(dry_run_text(plan, all), HasSubstr(" 1230  z1_gas1_tmbspg4"));
  const auto num_headers = [&] {
    const std::string text = dry_run_text(plan, all);
    std::size_t count = 0;
    for (const std::string_view line : lines_of(text))
      count += line.find("  verdict  ") != line.npos;
    return count;
  };
  EXPECT_EQ(num_headers(), 1U);
  while (plan.experiments.size() < 50) plan.experiments.push_back(plan.experiments.back());
  EXPECT_EQ(num_headers(), 2U);
}

}  // namespace
}  // namespace dstune
