#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "sections/section_table.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

using Readings = std::vector<Reading>;

constexpr double most_steps = 1'000'000;

/// A member of a structure takes the value, whatever of an integer's types it has.
template <class Field>
void assign(Field& field, const KnobValue& value) {
  if constexpr (requires { typename Field::value_type; }) {
    field = static_cast<typename Field::value_type>(std::get<std::int64_t>(value));
  } else if constexpr (std::is_same_v<Field, bool>) {
    field = std::get<bool>(value);
  } else {
    field = static_cast<Field>(std::get<std::int64_t>(value));
  }
}

template <auto member>
void set(SectionTarget& target, const Readings& readings) {
  assign(target.job->tuning.*member, readings.front().value);
}

template <auto member>
void set_measure(SectionTarget& target, const Readings& readings) {
  assign(target.job->tuning.measure.*member, readings.front().value);
}

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

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
}

/// One member of arg_mappings. DeepSpeed's own example has blanks around a key.
void add_mapping(SectionTarget& target, const Readings& readings) {
  const json::Node& node = readings.front().node;
  const std::string last(json::Value::json_pointer(node.pointer()).back());
  const std::string key = trimmed(last);
  const std::string flag = trimmed(std::get<std::string>(readings.front().value));
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

constexpr SectionRow mp_size_row() {
  auto row = integer_row("/autotuning/mp_size", "1", 1, no_limit,
                         "model-parallel degree; tensor and pipeline parallelism are not built");
  row.key.effect = KnobEffect::refused;
  row.key.mend = "tensor and pipeline parallelism are not: write 1";
  return row;
}

constexpr std::array autotuning_keys = {
    object_row("/autotuning", "DeepSpeed's section of its autotuner, with its documented defaults"),
    flag_row("/autotuning/enabled", "false", "DeepSpeed's switch; this program tunes either way"),
    applied(set<&TuningOptions::fast>,
            flag_row("/autotuning/fast", "true",
                     "`false` adds DeepSpeed's default grid of the stage for the knobs that the "
                     "document does not mention")),
    applied(set_folder<&TuningOptions::results_dir>,
            text_row("/autotuning/results_dir", "\"autotuning_results\"",
                     "folder of the results; here relative to the file")),
    applied(set_folder<&TuningOptions::exps_dir>,
            text_row("/autotuning/exps_dir", "\"autotuning_exps\"",
                     "folder of the experiments' files; here relative to the file")),
    applied(set<&TuningOptions::overwrite>,
            flag_row("/autotuning/overwrite", "false",
                     "delete what was written there before, once the input has passed; else "
                     "resume")),
    applied(set_metric,
            word_row("/autotuning/metric", "\"throughput\"",
                     "throughput|throughput_per_gpu|latency|flops|FLOPS_per_gpu",
                     "what is compared; of latency the smallest wins; `FLOPS_per_gpu` is another "
                     "name of `flops`")),
    text_row("/autotuning/metric_path", "null", "file of DeepSpeed's own experiments; not used"),
    applied(set_measure<&MeasureOptions::start_profile_step>,
            integer_row("/autotuning/start_profile_step", "3", 0, most_steps,
                        "at least so many warm-up steps")),
    applied(set_measure<&MeasureOptions::end_profile_step>,
            integer_row("/autotuning/end_profile_step", "5", 1, most_steps,
                        "at least end - start + 1 steps are timed")),
    applied(
        set_tuner,
        word_row("/autotuning/tuner_type", "\"race\"", "gridsearch|random|model_based|race",
                 "which member runs next: `gridsearch` every one in the plan's "
                 "order, `random` in an order drawn from `--seed`, `model_based` what DeepSpeed's "
                 "cost model ranks first, `race` what promises most by its prediction and by what "
                 "was measured so far, until nothing that is left is likely to be more than 1 % "
                 "better (docs/search.md)")),
    applied(set<&TuningOptions::early_stopping>,
            integer_row("/autotuning/tuner_early_stopping", "null", 0, largest_int,
                        "stop after so many experiments without a better one; 0: never; absent: "
                        "5 for `model_based`, else never; of no effect on `race`")),
    applied(set<&TuningOptions::num_trials>,
            integer_row("/autotuning/tuner_num_trials", "null", 1, largest_int,
                        "run at most so many members; absent: 50 for `model_based`, else all")),
    map_row("/autotuning/arg_mappings",
            "DeepSpeed key to flag of the user's script, for cmd_optimal.txt; blanks around both "
            "are stripped"),
    applied(add_mapping, matching(R"(\S)", text_row("/autotuning/arg_mappings/*", "null",
                                                    "the script's flag for a DeepSpeed key"))),
    applied(set<&TuningOptions::max_train_batch_size>,
            integer_row("/autotuning/max_train_batch_size", "null", 1, no_limit,
                        "members with a larger global batch are pruned")),
    applied(set<&TuningOptions::min_train_batch_size>,
            integer_row("/autotuning/min_train_batch_size", "1", 1, no_limit,
                        "members with a smaller global batch are pruned")),
    applied(set<&TuningOptions::max_train_micro_batch_size_per_gpu>,
            integer_row("/autotuning/max_train_micro_batch_size_per_gpu", "1024", 1, no_limit,
                        "largest size of the micro-batch search")),
    applied(set<&TuningOptions::min_train_micro_batch_size_per_gpu>,
            integer_row("/autotuning/min_train_micro_batch_size_per_gpu", "1", 1, no_limit,
                        "where the micro-batch search starts, unless the document says")),
    applied(set<&TuningOptions::num_tuning_micro_batch_sizes>,
            integer_row("/autotuning/num_tuning_micro_batch_sizes", "3", 1, largest_int,
                        "so many sizes from half of the largest on, where sizes are searched")),
    mp_size_row(),
    object_row("/autotuning/model_info", "what DeepSpeed is told of the model; not used"),
    flag_row("/autotuning/model_info/profile", "false", "profile it first; not used"),
    integer_row("/autotuning/model_info/num_params", "null", 1, no_limit, "not used"),
    integer_row("/autotuning/model_info/hidden_size", "null", 1, no_limit, "not used"),
    integer_row("/autotuning/model_info/num_layers", "null", 1, no_limit, "not used"),
    text_row("/autotuning/model_info_path", "null", "file of DeepSpeed's profile; not used"),
};

/// What no key is wrong for by itself. Said at the key that the document has.
void add_order_problem(const json::Node& section, const char* upper, const char* lower,
                       json::Problems& problems) {
  auto place = section.find(upper);
  if (!place || place->is_null()) place = section.find(lower);
  problems.add(
      (place ? *place : section).problem(fmt::format("{} is below {}: raise it", upper, lower)));
}

}  // namespace

std::span<const SectionRow> autotuning_rows() {
  return autotuning_keys;
}

void read_autotuning(const json::Node& section, SectionTarget& target) {
  read_section(section, autotuning_rows(), target);
  const TuningOptions& tuning = target.job->tuning;
  if (tuning.measure.end_profile_step < tuning.measure.start_profile_step)
    add_order_problem(section, "end_profile_step", "start_profile_step", *target.problems);
  if (tuning.max_train_batch_size && *tuning.max_train_batch_size < tuning.min_train_batch_size)
    add_order_problem(section, "max_train_batch_size", "min_train_batch_size", *target.problems);
  if (tuning.max_train_micro_batch_size_per_gpu < tuning.min_train_micro_batch_size_per_gpu)
    add_order_problem(section, "max_train_micro_batch_size_per_gpu",
                      "min_train_micro_batch_size_per_gpu", *target.problems);
}

}  // namespace dstune
