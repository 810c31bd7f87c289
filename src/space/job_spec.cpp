#include "dstune/space/job_spec.hpp"

#include <algorithm>
#include <filesystem>

#include "dstune/space/search_space.hpp"
#include "section.hpp"
#include "sections.hpp"
#include "variables.hpp"

namespace dstune {

namespace {

constexpr std::int64_t usual_sequence_length = 1024;

std::shared_ptr<const json::Document> read_document(const std::string& path) {
  return std::make_shared<const json::Document>(json::Document::read(path));
}

void apply(const Overrides& overrides, TuningOptions& tuning) {
  if (overrides.tuner_type) {
    std::string why;
    if (!is_built_tuner(*overrides.tuner_type, why)) throw UsageError(why);
    tuning.tuner_type = *overrides.tuner_type;
  }
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
                  JobSpec& job, json::Problems& problems) {
  const bool is_named = overrides.model || (section != nullptr && given(*section, "model"));
  if (const auto model = find_model(overrides.model, section, job.folder, problems)) {
    job.model = *model;
  } else if (!is_named && job.workload.kind == WorkloadKind::transformer) {
    problems.add((section != nullptr ? *section : root)
                     .problem("no model is given: use --model FILE|NAME, or dstune.model"));
  } else if (!is_named) {
    // Nothing is trained; predictions need some model.
    job.model = preset("gpt2");
  }
}

void decide_sequence_length(const json::Node* section, JobSpec& job, json::Problems& problems) {
  const auto positions = job.model.max_positions;
  job.sequence_length =
      positions > 0 ? std::min(positions, usual_sequence_length) : usual_sequence_length;
  if (section == nullptr) return;
  const auto longest = positions > 0 ? positions : std::int64_t{1} << 30;
  read_integer(*section, "sequence_length", job.sequence_length, problems, 1, longest);
}

json::Value deepspeed_part(const json::Value& root) {
  json::Value part = json::Value::object();
  for (const auto& [key, value] : root.items()) {
    if (key != "autotuning" && key != "dstune") part[key] = value;
  }
  return part;
}

}  // namespace

JobSpec read_job(const std::string& path, const Overrides& overrides,
                 const std::optional<Machine>& machine, int default_ranks) {
  JobSpec job;
  job.document = read_document(path);
  job.folder = std::filesystem::path(path).parent_path().string();
  job.recompute = {Recompute::none};
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
  if (const auto section = given(root, "autotuning")) {
    read_autotuning(*section, job.folder, job.tuning, problems);
  }
  apply(overrides, job.tuning);
  auto section = given(root, "dstune");
  if (section && !section->expect_object(problems)) section.reset();
  const auto* dstune = section ? &*section : nullptr;
  if (dstune != nullptr) read_dstune(*dstune, job, problems);
  read_resources(dstune, machine, default_ranks, job, problems);
  decide_model(overrides, root, dstune, job, problems);
  decide_sequence_length(dstune, job, problems);

  job.ds_config = deepspeed_part(replaced);
  if (job.experiment_files.empty()) {
    const auto products = expand(job, problems);
    problems.check();
    const auto found = find_warnings(job, products);
    job.warnings.insert(job.warnings.end(), found.begin(), found.end());
    if (job.tuning.tuner_type.empty()) {
      job.warnings.push_back(
          "no tuner_type is given: gridsearch runs every member (race is not built yet)");
    }
  }
  problems.check();
  return job;
}

}  // namespace dstune
