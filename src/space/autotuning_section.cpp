#include <array>
#include <filesystem>

#include "section.hpp"
#include "sections.hpp"

namespace dstune {

namespace {

constexpr std::int64_t most_steps = 1'000'000;

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
}

/// DeepSpeed's files say FLOPS_per_gpu where its documentation says FLOPS.
std::optional<Metric> find_metric(const std::string& text) {
  if (text == "FLOPS" || text == "FLOPS_per_gpu") return Metric::flops;
  return parse_metric(text);
}

void read_metric(const json::Node& section, Metric& metric, json::Problems& problems) {
  const auto text = read_text(section, "metric", problems);
  if (!text) return;
  if (const auto known = find_metric(*text)) {
    metric = *known;
  } else {
    problems.add(section.find("metric")->problem(
        "\"" + *text + "\" is no metric: take throughput, throughput_per_gpu, latency or flops"));
  }
}

bool is_known_tuner(const std::string& type) {
  return type == "gridsearch" || type == "random" || type == "race" || type == "model_based";
}

void read_tuner(const json::Node& section, TuningOptions& options, json::Problems& problems) {
  if (const auto type = read_text(section, "tuner_type", problems)) {
    std::string why;
    const bool is_overridden = !options.tuner_type.empty();
    if (is_built_tuner(*type, why)) {
      options.tuner_type = *type;
    } else if (!is_overridden || !is_known_tuner(*type)) {
      problems.add(section.find("tuner_type")->problem(why));
    }
  }
  read_integer(section, "tuner_early_stopping", options.early_stopping, problems, 0,
               std::numeric_limits<int>::max());
  read_integer(section, "tuner_num_trials", options.num_trials, problems, 1,
               std::numeric_limits<int>::max());
}

void read_arg_mappings(const json::Node& section, TuningOptions& options,
                       json::Problems& problems) {
  const auto mappings = given(section, "arg_mappings");
  if (!mappings || !mappings->expect_object(problems)) return;
  for (const auto& key : mappings->keys()) {
    if (const auto flag = read_text(*mappings, key, problems)) {
      options.arg_mappings.emplace_back(trimmed(key), trimmed(*flag));
    }
  }
}

void read_batch_limits(const json::Node& section, TuningOptions& options,
                       json::Problems& problems) {
  read_integer(section, "max_train_batch_size", options.max_train_batch_size, problems, 1);
  read_integer(section, "min_train_batch_size", options.min_train_batch_size, problems, 1);
  read_integer(section, "max_train_micro_batch_size_per_gpu",
               options.max_train_micro_batch_size_per_gpu, problems, 1);
  read_integer(section, "min_train_micro_batch_size_per_gpu",
               options.min_train_micro_batch_size_per_gpu, problems, 1);
  read_integer(section, "num_tuning_micro_batch_sizes", options.num_tuning_micro_batch_sizes,
               problems, 1, std::numeric_limits<int>::max());
  if (options.max_train_batch_size &&
      *options.max_train_batch_size < options.min_train_batch_size) {
    problems.add(section.find("max_train_batch_size")
                     ? section.find("max_train_batch_size")
                           ->problem("max_train_batch_size is below min_train_batch_size: raise it")
                     : section.problem("max_train_batch_size is below min_train_batch_size"));
  }
  if (options.max_train_micro_batch_size_per_gpu < options.min_train_micro_batch_size_per_gpu) {
    problems.add(
        section.problem("max_train_micro_batch_size_per_gpu (default 1024) is below "
                        "min_train_micro_batch_size_per_gpu: raise it"));
  }
}

/// Keys that mean something to DeepSpeed's launches alone: checked, then not used.
void check_unused(const json::Node& section, json::Problems& problems) {
  bool flag = false;
  std::int64_t number = 0;
  read_boolean(section, "enabled", flag, problems);
  read_text(section, "metric_path", problems);
  read_text(section, "model_info_path", problems);
  const auto info = given(section, "model_info");
  if (!info || !info->expect_object(problems)) return;
  info->refuse_unknown_keys(problems, {"profile", "num_params", "hidden_size", "num_layers"});
  read_boolean(*info, "profile", flag, problems);
  for (const char* key : {"num_params", "hidden_size", "num_layers"}) {
    read_integer(*info, key, number, problems, 1);
  }
}

void refuse_unbuilt(const json::Node& section, TuningOptions& options, json::Problems& problems) {
  read_boolean(section, "fast", options.fast, problems);
  std::int64_t mp_size = 1;
  read_integer(section, "mp_size", mp_size, problems, 1);
  if (mp_size != 1) {
    problems.add(section.find("mp_size")->problem("tensor and pipeline parallelism (mp_size " +
                                                  std::to_string(mp_size) +
                                                  ") are not built: only mp_size 1 is"));
  }
}

}  // namespace

std::string path_from(const std::string& folder, const std::string& path) {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

bool is_built_tuner(const std::string& type, std::string& why) {
  if (type == "gridsearch" || type == "random") return true;
  if (is_known_tuner(type)) {
    why = "the tuner " + type + " is not built yet: take gridsearch or random";
  } else {
    why = "\"" + type + "\" is no tuner: take gridsearch or random";
  }
  return false;
}

void read_autotuning(const json::Node& section, const std::string& folder, TuningOptions& options,
                     json::Problems& problems) {
  if (!section.expect_object(problems)) return;
  section.refuse_unknown_keys(problems, {"enabled",
                                         "fast",
                                         "results_dir",
                                         "exps_dir",
                                         "overwrite",
                                         "metric",
                                         "metric_path",
                                         "start_profile_step",
                                         "end_profile_step",
                                         "tuner_type",
                                         "tuner_early_stopping",
                                         "tuner_num_trials",
                                         "arg_mappings",
                                         "max_train_batch_size",
                                         "min_train_batch_size",
                                         "max_train_micro_batch_size_per_gpu",
                                         "min_train_micro_batch_size_per_gpu",
                                         "num_tuning_micro_batch_sizes",
                                         "mp_size",
                                         "model_info",
                                         "model_info_path"});
  if (const auto path = read_text(section, "results_dir", problems)) {
    options.results_dir = path_from(folder, *path);
  }
  if (const auto path = read_text(section, "exps_dir", problems)) {
    options.exps_dir = path_from(folder, *path);
  }
  read_boolean(section, "overwrite", options.overwrite, problems);
  read_metric(section, options.metric, problems);
  read_tuner(section, options, problems);
  read_integer(section, "start_profile_step", options.measure.start_profile_step, problems, 0,
               most_steps);
  read_integer(section, "end_profile_step", options.measure.end_profile_step, problems, 1,
               most_steps);
  if (options.measure.end_profile_step < options.measure.start_profile_step) {
    problems.add(
        section.problem("end_profile_step (default 5) is before start_profile_step "
                        "(default 3): raise it"));
  }
  read_arg_mappings(section, options, problems);
  read_batch_limits(section, options, problems);
  check_unused(section, problems);
  refuse_unbuilt(section, options, problems);
}

}  // namespace dstune
