// Experiments that files name, in the place of a space.
#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "dstune/core/settings.hpp"
#include "memory_predictor.hpp"
#include "settling.hpp"

namespace dstune {

namespace {

/// A file system's limit on names is 255 bytes. ".json" follows in the experiments folder, and
/// ".tmp" or a number where a copy stands beside it.
constexpr std::size_t longest_name = 240;

bool is_folder_name(const std::string& name) {
  const auto is_kept = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view(".+-_=").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, is_kept);
}

/// One file as an experiment. Adds problems; what it returns then is not to be used.
class ExperimentFile {
 public:
  ExperimentFile(const JobSpec& job, const json::Document& document, json::Problems& problems)
      : job_(&job), root_(document.node()), problems_(&problems) {}

  Experiment read() {
    Experiment experiment;
    if (!root_.expect_object(*problems_)) return experiment;
    read_name(experiment);
    read_shape(experiment);
    const auto config = root_.find("ds_config");
    if (!config) {
      problems_->add(root_.problem("\"ds_config\" is missing: the DeepSpeed config to be run"));
    } else if (config->expect_object(*problems_)) {
      read_config(*config, experiment);
    }
    return experiment;
  }
  /// Notes on keys that were left out of its config.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void read_name(Experiment& experiment) {
    const auto name = root_.find("name");
    if (!name) {
      problems_->add(root_.problem("\"name\" is missing"));
    } else if (const auto text = name->string(*problems_)) {
      experiment.name = *text;
      if (text->size() > longest_name) {
        problems_->add(name->problem(fmt::format(
            "a name becomes a file's, which has at most 255 bytes with its ending: take one of at "
            "most {} characters, not {}",
            longest_name, text->size())));
      } else if (!is_folder_name(*text)) {
        problems_->add(name->problem(
            "a name becomes a folder: letters, digits and . + - _ = only, not starting with ."));
      }
    }
  }

  void read_shape(Experiment& experiment) {
    experiment.shape = job_->shapes.front();
    const auto gpus = root_.find("num_gpus");
    const auto nodes = root_.find("num_nodes");
    if (!gpus && !nodes) return;
    const auto count = [&](const json::Node& node) {
      return static_cast<int>(node.integer(*problems_, 1, 1 << 20).value_or(1));
    };
    if (gpus) experiment.shape.num_gpus = count(*gpus);
    experiment.shape.num_nodes = nodes ? count(*nodes) : 1;
    if (job_->machine && !job_->machine->holds(experiment.shape)) {
      problems_->add((gpus ? *gpus : *nodes).problem(job_->machine->refusal(experiment.shape)));
    }
  }

  void read_config(const json::Node& config, Experiment& experiment) {
    auto& value = experiment.ds_config = config.value();
    value.erase("autotuning");
    value.erase("dstune");
    for (const std::string& note : drop_without_effect(job_->knobs(), value))
      notes_.push_back(fmt::format("{}: {}", config.document().file(), note));
    json::Problems found, unchecked;
    // The table's pointers start at the config's own root.
    const json::Node node(config.document(), value, "");
    Settings settings(job_->knobs());
    settings.apply(read_settings(job_->knobs(), node, found, job_->auto_values, &unchecked));
    for (const Problem& problem : unchecked.all())
      notes_.push_back(fmt::format("{}: {}: {}; DeepSpeed does not look at it",
                                   config.document().file(), problem.pointer, problem.message));
    for (const Violation& violation : violations_for(*job_, settings))
      found.add({node.document().file(), violation.pointer, 0, violation.message});
    check_automatic_precision(*job_, json::Node(config.document(), value, ""), found);
    experiment.config = training_config(settings);
    for (auto problem : problems_for(*job_, found)) {
      problem.pointer = config.pointer() + problem.pointer;
      problem.line = config.document().line(problem.pointer);
      problems_->add(std::move(problem));
    }
    std::string why;
    const auto triple = resolve_batch(
        settings.integer("/train_batch_size"), settings.integer("/train_micro_batch_size_per_gpu"),
        settings.integer("/gradient_accumulation_steps"), experiment.shape.size(), why);
    if (!triple) {
      problems_->add(config.problem(why));
      return;
    }
    value["train_batch_size"] = triple->train_batch_size;
    value["train_micro_batch_size_per_gpu"] = triple->micro_batch;
    value["gradient_accumulation_steps"] = triple->accumulation_steps;
    experiment.config.micro_batch = triple->micro_batch;
    experiment.config.accumulation_steps = triple->accumulation_steps;
    place_on(experiment.shape, experiment.config);
    complete_config(*job_, job_->recompute.front(), experiment.config);
    experiment.written_out =
        write_out_defaults(job_->deepspeed_version, experiment.config.zero_stage, value);
    const std::string refusal = target_refusal(*job_, experiment.config);
    if (!refusal.empty()) problems_->add(config.problem(refusal));
  }

  const JobSpec* job_;
  json::Node root_;
  json::Problems* problems_;
  std::vector<std::string> notes_;
};

}  // namespace

PlannedSpace plan_experiments(const JobSpec& job, const WorkspaceSizes& workspaces,
                              const PlannerOptions& options) {
  json::Problems problems;
  PlannedSpace space;
  space.is_unplanned = !is_planned(job);
  space.only_runs_tell = space.is_unplanned || options.forecasts.only_runs_tell;
  space.device_memory_bytes = options.device_memory_bytes;
  std::vector<Experiment> experiments;
  std::set<std::string> names;
  for (const auto& path : job.experiment_files) {
    try {
      const auto document = json::Document::read(path);
      ExperimentFile file(job, document, problems);
      experiments.push_back(file.read());
      std::ranges::copy(file.notes(), std::back_inserter(space.warnings));
      const auto& name = experiments.back().name;
      if (!name.empty() && !names.insert(name).second) {
        problems.add({path, "/name", document.line("/name"),
                      "the name " + name + " is that of another experiment, too: change one"});
      }
    } catch (const InputError& error) {
      for (const auto& problem : error.problems()) problems.add(problem);
    }
  }
  problems.check();

  MemoryPredictor predictor(job, workspaces);
  for (auto& experiment : experiments) {
    PlannedMember member;
    member.planned.experiment = std::move(experiment);
    decide_feasibility(job, options, predictor, member.planned);
    if (member.planned.status == PlanStatus::planned && !space.baseline)
      space.baseline = space.members.size();
    count(space, member.planned.status);
    ++space.total;
    space.members.push_back(std::move(member));
  }
  if (space.baseline && *space.baseline > 0)
    space.warnings.push_back(fmt::format("{} can not run: the baseline is {}",
                                         space.members.front().planned.experiment.name,
                                         space.experiment(*space.baseline).name));
  return space;
}

}  // namespace dstune
