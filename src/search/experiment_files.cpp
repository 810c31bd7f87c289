// Experiments that files name, in the place of a space.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
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
    check_keys();
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
  [[nodiscard]] bool says(const std::string& key) const {
    const auto node = root_.find(key);
    return node && !node->is_null();
  }

 private:
  /// DeepSpeed drops other keys, of which none is one of these mistyped.
  void check_keys() {
    const std::vector<std::string_view> known = {"name", "ds_config", "num_gpus", "num_nodes"};
    for (const std::string& key : root_.keys()) {
      if (std::ranges::find(known, key) != known.end()) continue;
      if (const auto meant = json::nearest(key, known))
        problems_->add(
            root_.find(key)->problem(fmt::format("unknown key: did you mean \"{}\"?", *meant)));
    }
  }

  void read_name(Experiment& experiment) {
    const auto name = root_.find("name");
    if (!name) {
      problems_->add(root_.problem("\"name\" is missing"));
    } else if (const auto text = name->string(*problems_)) {
      experiment.name = *text;
      if (text->size() > longest_name) {
        problems_->add(
            name->problem(fmt::format("a name becomes a file name, which has at most 255 bytes "
                                      "with its ending: take at most {} characters, not {}",
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
    const WrittenBatch written{
        settings.integer("/train_batch_size"), settings.integer("/train_micro_batch_size_per_gpu"),
        settings.integer("/gradient_accumulation_steps"), experiment.shape.size()};
    if (const std::string wrong = contradiction_of(written); !wrong.empty()) {
      const std::string pointer = config.pointer() + "/train_batch_size";
      problems_->add({config.document().file(), pointer, config.document().line(pointer),
                      wrong + batch_advice(written)});
      return;
    }
    std::string why;
    const auto triple = resolve_batch(written.train_batch_size, written.micro_batch,
                                      written.accumulation_steps, experiment.shape.size(), why);
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

/// A key of DeepSpeed's scheduler without an effect here, and why.
struct IdleKey {
  const char* key;
  const char* reason;
};
constexpr IdleKey idle_keys_of_files[] = {
    {"exp_id", "as in DeepSpeed's scheduler, experiments have the order of their files"},
    {"hostfile", "all experiments run on the ranks of this job"}};

/// The experiments of all files, each once.
class ExperimentFiles {
 public:
  explicit ExperimentFiles(const JobSpec& job) : job_(&job) {}

  std::vector<Experiment> read() {
    for (const std::string& path : job_->experiment_files) {
      if (!paths_.insert(path).second) {
        notes_.push_back(fmt::format("{} is given twice, and run once", path));
        continue;
      }
      try {
        read_file(path);
      } catch (const InputError& error) {
        for (const auto& problem : error.problems()) problems_.add(problem);
      }
    }
    problems_.check();
    for (const IdleKey& idle : idle_keys_of_files)
      if (const auto& files = without_effect_[idle.key]; !files.empty())
        notes_.push_back(fmt::format(
            "{} has no effect in {}: {}", idle.key,
            files.size() == 1 ? files.front() : format_count(files.size(), "file"), idle.reason));
    return std::move(experiments_);
  }
  [[nodiscard]] std::vector<std::string>& notes() { return notes_; }

 private:
  void read_file(const std::string& path) {
    const auto document = json::Document::read(path);
    ExperimentFile file(*job_, document, problems_);
    Experiment experiment = file.read();
    std::ranges::copy(file.notes(), std::back_inserter(notes_));
    for (const IdleKey& idle : idle_keys_of_files)
      if (file.says(idle.key)) without_effect_[idle.key].push_back(path);
    if (!experiment.name.empty()) {
      const auto [known, is_new] = names_.try_emplace(experiment.name, experiments_.size(), path);
      const auto& [index, first] = known->second;
      if (!is_new && is_same(experiments_[index], experiment)) {
        notes_.push_back(fmt::format("{} is the experiment of {}, too, and skipped", path, first));
        return;
      }
      if (!is_new)
        problems_.add({path, "/name", document.line("/name"),
                       fmt::format("the name {} is that of another experiment, in {}: change one",
                                   experiment.name, first)});
    }
    experiments_.push_back(std::move(experiment));
  }

  static bool is_same(const Experiment& one, const Experiment& other) {
    return one.ds_config == other.ds_config && one.shape == other.shape;
  }

  const JobSpec* job_;
  json::Problems problems_;
  std::vector<Experiment> experiments_;
  std::set<std::string> paths_;
  std::map<std::string, std::pair<std::size_t, std::string>> names_;  ///< the first, and its file
  std::map<std::string_view, std::vector<std::string>> without_effect_;  ///< files by key
  std::vector<std::string> notes_;
};

}  // namespace

PlannedSpace plan_experiments(const JobSpec& job, const WorkspaceSizes& workspaces,
                              const PlannerOptions& options) {
  PlannedSpace space;
  space.is_unplanned = !is_planned(job);
  space.only_runs_tell = space.is_unplanned || options.forecasts.only_runs_tell;
  space.device_memory_bytes = options.device_memory_bytes;
  ExperimentFiles files(job);
  std::vector<Experiment> experiments = files.read();
  space.warnings = std::move(files.notes());

  MemoryPredictor predictor(job, workspaces);
  for (auto& experiment : experiments) {
    PlannedMember member;
    member.planned.experiment = std::move(experiment);
    decide_feasibility(job, options, predictor, member.planned);
    if (member.planned.status == PlanStatus::planned && !space.baseline)
      space.baseline = space.members.size();
    count(space, member.planned);
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
