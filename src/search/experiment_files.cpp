#include <algorithm>
#include <set>

#include "dstune/core/settings.hpp"
#include "memory_predictor.hpp"

namespace dstune {

namespace {

bool is_folder_name(const std::string& name) {
  const auto is_kept = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view(".+-_=").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), is_kept);
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

 private:
  void read_name(Experiment& experiment) {
    const auto name = root_.find("name");
    if (!name) {
      problems_->add(root_.problem("\"name\" is missing"));
    } else if (const auto text = name->string(*problems_)) {
      experiment.name = *text;
      if (!is_folder_name(*text)) {
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
    experiment.shape.num_nodes = 1;
    if (gpus) {
      experiment.shape.num_gpus =
          static_cast<int>(gpus->integer(*problems_, 1, 1 << 20).value_or(1));
    }
    if (nodes) {
      experiment.shape.num_nodes =
          static_cast<int>(nodes->integer(*problems_, 1, 1 << 20).value_or(1));
    }
    if (job_->machine && !job_->machine->holds(experiment.shape)) {
      problems_->add((gpus ? *gpus : *nodes).problem(job_->machine->refusal(experiment.shape)));
    }
  }

  void read_config(const json::Node& config, Experiment& experiment) {
    auto& value = experiment.ds_config = config.value();
    value.erase("autotuning");
    value.erase("dstune");
    json::Problems found;
    // The table's pointers start at the config's own root.
    const Settings settings = dstune::read_config(json::Node(config.document(), value, ""), found);
    experiment.config = training_config(settings);
    for (auto problem : found.all()) {
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
    const std::string refusal = target_refusal(*job_, experiment.config);
    if (!refusal.empty()) problems_->add(config.problem(refusal));
  }

  const JobSpec* job_;
  json::Node root_;
  json::Problems* problems_;
};

}  // namespace

PlannedSpace plan_experiments(const JobSpec& job, const WorkspaceSizes& workspaces,
                              const PlannerOptions& options) {
  json::Problems problems;
  std::vector<Experiment> experiments;
  std::set<std::string> names;
  for (const auto& path : job.experiment_files) {
    try {
      const auto document = json::Document::read(path);
      experiments.push_back(ExperimentFile(job, document, problems).read());
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

  PlannedSpace space;
  MemoryPredictor predictor(job, workspaces);
  for (auto& experiment : experiments) {
    PlannedMember member;
    member.planned.experiment = std::move(experiment);
    decide_feasibility(job, options, predictor, member.planned);
    if (member.planned.status == PlanStatus::planned && !space.baseline) {
      space.baseline = space.members.size();
    }
    ++(member.planned.status == PlanStatus::planned ? space.planned : space.infeasible);
    ++space.total;
    space.members.push_back(std::move(member));
  }
  return space;
}

}  // namespace dstune
