#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

using Readings = std::vector<Reading>;

constexpr double max_steps = 1'000'000;

template <auto member>
void set_folder(SectionTarget& target, const Readings& readings) {
  target.job->tuning.*member =
      path_from(target.job->folder, std::get<std::string>(readings.front().value));
}

/// DeepSpeed's files say FLOPS_per_gpu where its documentation says FLOPS.
void set_metric(SectionTarget& target, const Readings& readings) {
  const auto& word = std::get<std::string>(readings.front().value);
  target.job->tuning.metric = word == "FLOPS_per_gpu"
                                  ? Metric::flops
                                  : from_text<Metric>(word).value_or(Metric::throughput);
}

void set_tuner(SectionTarget& target, const Readings& readings) {
  // The command line has decided where it names one.
  if (target.job->tuning.tuner_type.empty())
    target.job->tuning.tuner_type = std::get<std::string>(readings.front().value);
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

}  // namespace

std::span<const SectionRow> autotuning_rows() {
  using namespace rows;
  using Job = JobSpec;
  using Tuning = TuningOptions;
  static const std::string default_tuner = fmt::format("\"{}\"", default_tuner_type);
  static const std::vector<SectionRow> all = {
      object("/autotuning", "DeepSpeed's section of its autotuner, with its documented defaults"),
      flag("/autotuning/enabled", "false", inert,
           "DeepSpeed's switch; this program tunes either way"),
      sets<&Job::tuning, &Tuning::fast>(
          "/autotuning/fast",
          "`false` adds DeepSpeed's default grid of the stage for the knobs that the document does "
          "not mention"),
      sets<&Job::tuning, &Tuning::results_dir>("/autotuning/results_dir",
                                               set_folder<&Tuning::results_dir>,
                                               "folder of the results; here relative to the file"),
      sets<&Job::tuning, &Tuning::exps_dir>(
          "/autotuning/exps_dir", set_folder<&Tuning::exps_dir>,
          "folder of the experiments' files; here relative to the file"),
      sets<&Job::tuning, &Tuning::overwrite>(
          "/autotuning/overwrite",
          "delete what was written there before, once the input has passed; else resume"),
      applied(set_metric,
              text("/autotuning/metric", default_of<Job, &Job::tuning, &Tuning::metric>(),
                   "throughput|throughput_per_gpu|latency|flops|FLOPS_per_gpu", inert,
                   "what is compared; of latency the smallest wins; `FLOPS_per_gpu` is another "
                   "name of `flops`")),
      any_text("/autotuning/metric_path", "file of DeepSpeed's own experiments; not used"),
      within(0, max_steps,
             sets<&Job::tuning, &Tuning::measure, &MeasureOptions::start_profile_step>(
                 "/autotuning/start_profile_step", "at least so many warm-up steps")),
      within(1, max_steps,
             sets<&Job::tuning, &Tuning::measure, &MeasureOptions::end_profile_step>(
                 "/autotuning/end_profile_step", "at least end - start + 1 steps are timed")),
      applied(
          set_tuner,
          text("/autotuning/tuner_type", default_tuner, "gridsearch|random|model_based|race", inert,
               "which member runs next: `gridsearch` every one in the plan's "
               "order, `random` in an order drawn from `--seed`, `model_based` what DeepSpeed's "
               "cost model ranks first, `race` what promises most by its prediction and by what "
               "was measured so far, until nothing that is left is likely to be more than 1 % "
               "better (docs/search.md)")),
      within(0, largest_int,
             sets<&Job::tuning, &Tuning::early_stopping>(
                 "/autotuning/tuner_early_stopping",
                 "stop after so many experiments without a better one; 0: never; absent: "
                 "5 for `model_based`, else never; of no effect on `race`")),
      within(1, largest_int,
             sets<&Job::tuning, &Tuning::num_trials>(
                 "/autotuning/tuner_num_trials",
                 "run at most so many members; absent: 50 for `model_based`, else all")),
      map("/autotuning/arg_mappings",
          "DeepSpeed key to flag of the user's script, for cmd_optimal.txt; blanks around both "
          "are stripped"),
      applied(add_mapping, matching(R"(\S)", any_text("/autotuning/arg_mappings/*",
                                                      "the script's flag for a DeepSpeed key"))),
      within(
          1, unbounded,
          sets<&Job::tuning, &Tuning::max_train_batch_size>(
              "/autotuning/max_train_batch_size", "members with a larger global batch are pruned")),
      within(1, unbounded,
             sets<&Job::tuning, &Tuning::min_train_batch_size>(
                 "/autotuning/min_train_batch_size",
                 "members with a smaller global batch are pruned")),
      within(1, unbounded,
             sets<&Job::tuning, &Tuning::max_train_micro_batch_size_per_gpu>(
                 "/autotuning/max_train_micro_batch_size_per_gpu",
                 "largest size of the micro-batch search")),
      within(1, unbounded,
             sets<&Job::tuning, &Tuning::min_train_micro_batch_size_per_gpu>(
                 "/autotuning/min_train_micro_batch_size_per_gpu",
                 "where the micro-batch search starts, unless the document says")),
      within(1, largest_int,
             sets<&Job::tuning, &Tuning::num_tuning_micro_batch_sizes>(
                 "/autotuning/num_tuning_micro_batch_sizes",
                 "so many sizes from half of the largest on, where sizes are searched")),
      instead("tensor and pipeline parallelism are not: write 1",
              integer("/autotuning/mp_size", "1", 1, refused,
                      "model-parallel degree; tensor and pipeline parallelism are not built")),
      object("/autotuning/model_info", "what DeepSpeed is told of the model; not used"),
      flag("/autotuning/model_info/profile", "false", inert, "profile it first; not used"),
      integer("/autotuning/model_info/num_params", "null", 1, inert, "not used"),
      integer("/autotuning/model_info/hidden_size", "null", 1, inert, "not used"),
      integer("/autotuning/model_info/num_layers", "null", 1, inert, "not used"),
      any_text("/autotuning/model_info_path", "file of DeepSpeed's profile; not used"),
  };
  return all;
}

}  // namespace dstune
