#include "dstune/space/job_spec.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "dstune/model/module_names.hpp"
#include "dstune/space/search_space.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

constexpr std::int64_t default_sequence_length = 1024;

std::shared_ptr<const json::Document> read_document(const std::string& path) {
  return std::make_shared<const json::Document>(json::Document::read(path));
}

void apply(const Overrides& overrides, TuningOptions& tuning) {
  if (overrides.tuner_type) tuning.tuner_type = *overrides.tuner_type;
  if (overrides.full) tuning.fast = false;
  if (overrides.metric) tuning.metric = *overrides.metric;
  if (overrides.num_trials) tuning.num_trials = *overrides.num_trials;
  if (overrides.early_stopping) tuning.early_stopping = *overrides.early_stopping;
  if (overrides.seed) tuning.seed = *overrides.seed;
  if (overrides.results_dir) tuning.results_dir = *overrides.results_dir;
  if (overrides.exps_dir) tuning.exps_dir = *overrides.exps_dir;
  if (overrides.overwrite) tuning.overwrite = true;
}

void decide_model(const Overrides& overrides, const json::Node& root, const json::Node* section,
                  SectionTarget& target) {
  JobSpec& job = *target.job;
  json::Problems& problems = *target.problems;
  const bool is_named = overrides.model || (section != nullptr && given(*section, "model"));
  if (const auto model = find_model(overrides.model, target.model, job.folder, problems)) {
    job.model = *model;
  } else if (!is_named && job.workload.kind == WorkloadKind::transformer) {
    problems.add((section != nullptr ? *section : root)
                     .problem("no model is given: use --model FILE|NAME, or dstune.model"));
  } else if (!is_named) {
    // Nothing is trained; predictions need some model.
    job.model = preset("gpt2");
  }
}

void decide_sequence_length(SectionTarget& target) {
  JobSpec& job = *target.job;
  const auto positions = job.model.max_positions;
  job.sequence_length =
      positions > 0 ? std::min(positions, default_sequence_length) : default_sequence_length;
  if (!target.sequence_length) return;
  const json::Node& written = target.sequence_length->node;
  job.sequence_length = std::get<std::int64_t>(target.sequence_length->value);
  if (positions > 0 && job.sequence_length > positions)
    target.problems->add(
        written.problem(fmt::format("the model has {} positions: write at most as many, not {}",
                                    positions, job.sequence_length)));
}

json::Value deepspeed_part(const json::Value& root) {
  json::Value part = json::Value::object();
  for (const auto& [key, value] : root.items()) {
    if (key != "autotuning" && key != "dstune") part[key] = value;
  }
  return part;
}

}  // namespace

void complete_config(const JobSpec& job, Recompute recompute, TrainingConfig& config) {
  const bool reads_section = job.target.framework == TargetFramework::self ||
                             job.target.checkpointing == TargetCheckpointing::deepspeed;
  config.sequence_length = job.sequence_length;
  config.recompute = recompute;
  const bool acts = reads_section && recompute == Recompute::block;
  config.cpu_checkpointing = config.cpu_checkpointing && acts;
  config.synchronize_checkpoint_boundary = config.synchronize_checkpoint_boundary && acts;
  // Members are twins where a model has none of what they name.
  if (selected_modules(job.model, config.leaf_modules).empty()) config.leaf_modules = {};
}

std::string target_refusal(const JobSpec& job, const TrainingConfig& config) {
  if (job.target.framework == TargetFramework::self || config.zero_stage < 3 ||
      config.recompute != Recompute::selective)
    return "";
  return "/dstune/activation_recompute: selective fails in PyTorch under ZeRO stage 3, whose "
         "gathers are not the same when forward is run again: take none or block, or another stage";
}

JobSpec read_job(const std::string& path, const Overrides& overrides,
                 const std::optional<Machine>& machine, int default_ranks) {
  JobSpec job;
  job.document = read_document(path);
  job.folder = std::filesystem::path(path).parent_path().string();
  job.recompute = {TrainingConfig().recompute};
  job.machine = machine;
  job.experiment_files = overrides.experiment_files;

  json::Problems problems;
  const auto written = job.document->node();
  if (!written.expect_object(problems)) problems.check();
  std::optional<json::Node> variables;
  if (const auto section = given(written, "dstune")) variables = given(*section, "variables");
  const auto replaced = replace_variables(written, variables ? &*variables : nullptr, problems);
  const json::Node root(*job.document, replaced, "");

  job.tuning.tuner_type = overrides.tuner_type.value_or("");
  SectionTarget target{&job, &problems, {}, {}, {}, {}};
  if (const auto section = given(root, "autotuning")) read_autotuning(*section, target);
  apply(overrides, job.tuning);
  const auto section = given(root, "dstune");
  if (section) read_dstune(*section, target);
  const auto resources = section ? given(*section, "resources") : std::nullopt;
  decide_shapes(resources ? &*resources : nullptr, default_ranks, target);
  decide_model(overrides, root, section ? &*section : nullptr, target);
  decide_sequence_length(target);

  job.ds_config = deepspeed_part(replaced);
  if (job.experiment_files.empty()) {
    const auto products = expand(job, problems);
    problems.check();
    const auto found = find_warnings(job, products);
    job.warnings.insert(job.warnings.end(), found.begin(), found.end());
  }
  problems.check();
  // Files of experiments are run, all of them.
  if (job.tuning.tuner_type.empty())
    job.tuning.tuner_type = job.experiment_files.empty() ? "race" : "gridsearch";
  return job;
}

}  // namespace dstune
