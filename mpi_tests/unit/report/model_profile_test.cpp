/// The model's profile in the plan, in summary.txt and in optimal.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/report/dry_run.hpp"
#include "dstune/report/results.hpp"
#include "samples.hpp"
#include "toy_plan.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::Not;

ModelProfile sample_profile() {
  return {.parameters = 6'742'609'920,
          .trainable_parameters = 4'194'304,
          .sequence_length = 4096,
          .precision = Precision::bf16,
          .activation_bytes = std::int64_t{3} << 30,
          .loss_bytes = std::int64_t{1} << 29,
          .flops_per_token = 4.25e10};
}

constexpr const char* sample_text =
    "6.74 billion parameters, 4.19 million trainable; a sample of 4096 tokens in bf16 keeps "
    "3.00 GiB of activations without recompute, and its loss takes 512 MiB; 42.5 GFLOP a token";

TEST(ModelProfileTest, IsInThePlan) {
  const test::ToyModel model;
  DryRun plan = test::toy_plan(model);
  EXPECT_THAT(dry_run_text(plan), Not(HasSubstr("Profile")));
  EXPECT_TRUE(dry_run_json(plan)["model_profile"].is_null());
  plan.model_profile = sample_profile();
  EXPECT_THAT(dry_run_text(plan),
              HasSubstr("\nProfile: " + std::string(sample_text) + ".\n8 GPUs"));
  EXPECT_EQ(dry_run_json(plan)["model_profile"].dump(),
            R"({"parameters":6742609920,"trainable_parameters":4194304,"sequence_length":4096,)"
            R"("precision":"bf16","activation_bytes_per_sample":3221225472,)"
            R"("loss_bytes_per_sample":536870912,"flops_per_token":42500000000.0})");
  plan.model_profile->activation_bytes.reset();
  plan.model_profile->loss_bytes.reset();
  plan.model_profile->trainable_parameters = plan.model_profile->parameters;
  EXPECT_THAT(dry_run_text(plan),
              HasSubstr("Profile: 6.74 billion parameters, all trainable; 42.5 GFLOP a token.\n"));
  EXPECT_TRUE(dry_run_json(plan)["model_profile"]["loss_bytes_per_sample"].is_null());
}

TEST(ModelProfileTest, IsInTheSummaryAndBesideTheAnswer) {
  const std::vector<Row> rows = {test::row_of(test::sample_record("z1_tmbspg4", 0.5, 1))};
  const Scoreboard known({.model_profile = sample_profile()}, rows);
  const Answer answer = answer_of(known);
  EXPECT_THAT(summary_text(answer), HasSubstr("\nThe model: " + std::string(sample_text) + ".\n"));
  EXPECT_EQ(optimal_json(*answer.recommendation, "train")["model_profile"]["trainable_parameters"],
            4'194'304);
  const Scoreboard unknown({}, rows);
  const Answer other = answer_of(unknown);
  EXPECT_THAT(summary_text(other), Not(HasSubstr("The model:")));
  EXPECT_TRUE(optimal_json(*other.recommendation, "train")["model_profile"].is_null());
}

}  // namespace
}  // namespace dstune
