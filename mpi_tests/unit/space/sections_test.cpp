// The sections `autotuning` and `dstune`, key by key from their tables.
#include "sections/sections.hpp"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::vector<SectionRow> all_rows() {
  std::vector<SectionRow> rows;
  for (const auto part : {autotuning_rows(), dstune_rows()})
    for (const SectionRow& row : part) rows.push_back(row);
  return rows;
}

/// A document that has `value` at the row's pointer and what the key can not do without beside it.
json::Value document_with(const SectionRow& row, const json::Value& value) {
  json::Value document = json::Value::object();
  std::string pointer(row.pointer);
  if (pointer.ends_with("/*")) pointer.replace(pointer.size() - 1, 1, "lr");
  const json::Value::json_pointer place(pointer);
  const auto [key, word] = prerequisite_in(row.only_with);
  if (!key.empty()) document[place.parent_pointer() / std::string(key)] = std::string(word);
  auto& section = document[place.parent_pointer()];
  if (section.is_null()) section = json::Value::object();
  document[place] = value;
  return document;
}

class SectionsTest : public SpaceTest {
 protected:
  std::vector<std::string> pointers_of(const json::Value& document) {
    std::vector<std::string> pointers;
    for (const Problem& problem : problems(document.dump())) pointers.push_back(problem.pointer);
    return pointers;
  }
};

TEST_F(SectionsTest, EveryRowHasAHelpAndADefaultOfItsType) {
  std::set<std::string_view> sections = {""};
  for (const SectionRow& row : all_rows()) {
    EXPECT_FALSE(row.help.empty()) << row.pointer;
    EXPECT_TRUE(sections.contains(row.pointer.substr(0, row.pointer.rfind('/'))))
        << row.pointer << " stands before its section";
    if (row.type == KnobType::object) sections.insert(row.pointer);
    const auto fallback = json::Value::parse(row.fallback);
    if (fallback.is_null()) continue;
    EXPECT_THAT(pointers_of(document_with(row, fallback)),
                testing::Not(testing::Contains(row.pointer)));
  }
}

TEST_F(SectionsTest, DefaultsAreThoseOfTheJobsMembers) {
  std::map<std::string, json::Value> defaults;
  for (const SectionRow& row : all_rows()) {
    const auto fallback = json::Value::parse(row.fallback);
    if (!fallback.is_structured() && !fallback.is_null()) defaults.emplace(row.pointer, fallback);
  }
  const auto has = [&](const std::string& key, const json::Value& value) {
    EXPECT_EQ(defaults[key], value) << key;
    defaults.erase(key);
  };
  const TuningOptions usual;
  has("/autotuning/fast", usual.fast);
  has("/autotuning/results_dir", usual.results_dir);
  has("/autotuning/exps_dir", usual.exps_dir);
  has("/autotuning/overwrite", usual.overwrite);
  has("/autotuning/metric", to_text(usual.metric));
  has("/autotuning/start_profile_step", usual.measure.start_profile_step);
  has("/autotuning/end_profile_step", usual.measure.end_profile_step);
  has("/autotuning/tuner_type", default_tuner_type);
  has("/autotuning/min_train_batch_size", usual.min_train_batch_size);
  has("/autotuning/max_train_micro_batch_size_per_gpu", usual.max_train_micro_batch_size_per_gpu);
  has("/autotuning/min_train_micro_batch_size_per_gpu", usual.min_train_micro_batch_size_per_gpu);
  has("/autotuning/num_tuning_micro_batch_sizes", usual.num_tuning_micro_batch_sizes);
  has("/dstune/allow_unknown", JobSpec().allows_unknown);
  has("/dstune/activation_recompute", to_text(TrainingConfig().recompute));
  has("/dstune/target/framework", to_text(TargetSpec().framework));
  has("/dstune/target/attention", to_text(TargetSpec().attention));
  has("/dstune/target/checkpointing", to_text(TargetSpec().checkpointing));
  has("/dstune/target/loss", to_text(TargetSpec().loss));
  has("/dstune/target/fp32_logits", TargetSpec().fp32_logits);
  has("/dstune/target/expandable_segments", TargetSpec().expandable_segments);
  has("/dstune/target/zero_init", TargetSpec().zero_init);
  has("/dstune/trial_budget_s", usual.measure.trial_budget_s);
  has("/dstune/workload", to_text(WorkloadSpec().kind));
  has("/dstune/workload/step_time_s", WorkloadSpec().step_time_s);
  has("/dstune/workload/time_scale", WorkloadSpec().time_scale);
  // These are not used, or are false where they are absent.
  for (const char* key : {"/autotuning/enabled", "/autotuning/model_info/profile",
                          "/dstune/workload/scratch", "/dstune/verify/scratch"})
    has(key, false);
  has("/autotuning/mp_size", 1);
  EXPECT_THAT(defaults, testing::IsEmpty());
}

TEST_F(SectionsTest, EveryKeyRefusesAnotherType) {
  for (const SectionRow& row : all_rows()) {
    const json::Value wrong =
        row.type == KnobType::boolean ? json::Value("yes") : json::Value(true);
    const json::Value document = document_with(row, wrong);
    const auto place = pointers_of(document);
    ASSERT_FALSE(place.empty()) << row.pointer;
    const std::string pointer(row.pointer.substr(0, row.pointer.find('*')));
    EXPECT_THAT(place, testing::Contains(testing::StartsWith(pointer)));
  }
}

TEST_F(SectionsTest, EveryRangeIsKept) {
  int num_ranges = 0;
  for (const SectionRow& row : all_rows()) {
    for (const double outside : {row.low - 1, row.high * 2}) {
      if (std::isinf(outside)) continue;
      json::Value value = outside;
      if (row.type == KnobType::integer) value = static_cast<std::int64_t>(outside);
      EXPECT_THAT(pointers_of(document_with(row, value)), testing::Contains(row.pointer)) << value;
      ++num_ranges;
    }
  }
  EXPECT_GT(num_ranges, 30);
}

TEST_F(SectionsTest, EverySectionRefusesUnknownKeys) {
  int num_closed = 0;
  for (const SectionRow& row : all_rows()) {
    if (!row.closed) continue;
    const std::string pointer = std::string(row.pointer) + "/unheard_of";
    json::Value document;
    document[json::Value::json_pointer(pointer)] = 1;
    EXPECT_THAT(pointers_of(document), testing::Contains(pointer));
    ++num_closed;
  }
  EXPECT_EQ(num_closed, 11);
}

TEST_F(SectionsTest, NullIsTheDefault) {
  const auto read = job(R"({"autotuning": {"fast": null, "metric": null, "arg_mappings": null,
      "max_train_batch_size": null, "model_info": {"num_params": null}}, "dstune":
      {"sequence_length": null, "resources": {"num_gpus": null}, "workload": null}})");
  EXPECT_TRUE(read.tuning.fast);
  EXPECT_EQ(read.tuning.metric, Metric::throughput);
  EXPECT_EQ(read.sequence_length, 1024);
}

TEST_F(SectionsTest, MetricsAreNamedAsDeepSpeedAndItsDocumentationDo) {
  const auto metric_of = [&](const std::string& word) {
    return job(R"({"autotuning": {"metric": ")" + word + R"("}})").tuning.metric;
  };
  EXPECT_EQ(metric_of("throughput"), Metric::throughput);
  EXPECT_EQ(metric_of("throughput_per_gpu"), Metric::throughput_per_gpu);
  EXPECT_EQ(metric_of("latency"), Metric::latency);
  for (const char* word : {"flops", "FLOPS", "FLOPS_per_gpu"})
    EXPECT_EQ(metric_of(word), Metric::flops) << word;
}

TEST_F(SectionsTest, MappingsLoseTheirBlanksAndKeepTheirOrder) {
  const auto read = job(R"({"autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu":
      " --per_device_train_batch_size", "gradient_accumulation_steps ": "--gas"}}})");
  EXPECT_THAT(read.tuning.arg_mappings,
              ElementsAre(Pair("train_micro_batch_size_per_gpu", "--per_device_train_batch_size"),
                          Pair("gradient_accumulation_steps", "--gas")));
}

TEST_F(SectionsTest, TemplatesAreAFolderOrFilesByStage) {
  write("template_zero1.json", "{}");
  write("template_zero3.json", "{}");
  const auto one = (folder_ / "template_zero1.json").string();
  const auto three = (folder_ / "template_zero3.json").string();
  EXPECT_THAT(job(R"({"dstune": {"templates": "."}})").templates,
              ElementsAre(Pair(1, one), Pair(3, three)));
  EXPECT_THAT(job(R"({"dstune": {"templates": {"2": "template_zero1.json"}}})").templates,
              ElementsAre(Pair(2, one)));
}

TEST(SectionRowsTest, FamiliesAreThoseOfTheModels) {
  std::string words;
  for (const SectionRow& row : dstune_rows())
    if (row.pointer == "/dstune/model/family")
      for (const std::string_view word : choices_of(row.choices))
        words += (words.empty() ? "" : ", ") + std::string(word);
  EXPECT_EQ(words, model_family_names());
}

}  // namespace
}  // namespace dstune
