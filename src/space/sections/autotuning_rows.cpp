#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

using Readings = std::vector<Reading>;

template <auto member>
void set_folder(SectionTarget& target, const Readings& readings) {
  target.job->tuning.*member =
      path_from(target.job->folder, std::get<std::string>(readings.front().value));
}

/// DeepSpeed's files say FLOPS_per_gpu where its documentation says FLOPS.
void set_metric(SectionTarget& target, const Readings& readings) {
  const auto& word = std::get<std::string>(readings.front().value);
  target.job->tuning.metric = from_text<Metric>(word).value_or(Metric::flops);
}

void set_tuner(SectionTarget& target, const Readings& readings) {
  // The command line has decided where it names one.
  if (target.job->tuning.tuner_type.empty())
    set<&JobSpec::tuning, &TuningOptions::tuner_type>(target, readings);
}

/// One member of arg_mappings. DeepSpeed's own example has blanks around a key.
void add_mapping(SectionTarget& target, const Readings& readings) {
  const json::Node& node = readings.front().node;
  const std::string last(json::Value::json_pointer(node.pointer()).back());
  const std::string key(trimmed(last));
  const std::string flag(trimmed(std::get<std::string>(readings.front().value)));
  auto& mappings = target.job->tuning.arg_mappings;
  const bool is_twice = std::any_of(mappings.begin(), mappings.end(),
                                    [&](const auto& mapping) { return mapping.first == key; });
  if (key.empty() || flag.empty()) {
    target.problems->add(node.problem("a DeepSpeed key and the script's flag for it are needed"));
  } else if (is_twice) {
    target.problems->add(node.problem(fmt::format("\"{}\" is mapped twice: keep one", key)));
  } else {
    mappings.emplace_back(key, flag);
  }
}

void set_start(SectionTarget& target, const std::vector<Reading>& readings) {
  MeasureOptions& measure = target.job->tuning.measure;
  assign(measure.start_profile_step, readings.front().value);
  measure.asks_for_warmup = true;
}

}  // namespace

std::span<const SectionRow> autotuning_rows() {
  using Tuning = TuningOptions;
  constexpr auto tuning = &JobSpec::tuning;
  static const std::vector<SectionRow> all = section_rows(
      "autotuning",
      {{"/autotuning/fast", set<tuning, &Tuning::fast>},
       {"/autotuning/results_dir", set_folder<&Tuning::results_dir>},
       {"/autotuning/exps_dir", set_folder<&Tuning::exps_dir>},
       {"/autotuning/overwrite", set<tuning, &Tuning::overwrite>},
       {"/autotuning/metric", set_metric},
       {"/autotuning/start_profile_step", set_start},
       {"/autotuning/end_profile_step",
        set<tuning, &Tuning::measure, &MeasureOptions::end_profile_step>},
       {"/autotuning/tuner_type", set_tuner},
       {"/autotuning/tuner_early_stopping", set<tuning, &Tuning::early_stopping>},
       {"/autotuning/tuner_num_trials", set<tuning, &Tuning::num_trials>},
       {"/autotuning/arg_mappings/*", add_mapping},
       {"/autotuning/max_train_batch_size", set<tuning, &Tuning::max_train_batch_size>},
       {"/autotuning/min_train_batch_size", set<tuning, &Tuning::min_train_batch_size>},
       {"/autotuning/max_train_micro_batch_size_per_gpu",
        set<tuning, &Tuning::max_train_micro_batch_size_per_gpu>},
       {"/autotuning/min_train_micro_batch_size_per_gpu",
        set<tuning, &Tuning::min_train_micro_batch_size_per_gpu>},
       {"/autotuning/num_tuning_micro_batch_sizes",
        set<tuning, &Tuning::num_tuning_micro_batch_sizes>}});
  return all;
}

}  // namespace dstune
