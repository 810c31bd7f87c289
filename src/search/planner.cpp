#include "dstune/search/planner.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/settings.hpp"
#include "memory_predictor.hpp"

namespace dstune {

namespace {

/// Whether what is tried, and in which order, is the tuner's choice and not the plan's. A dry run
/// has no measurements to choose by: it lists the space's order, up to the cap.
bool chooses_by_itself(const TuningOptions& tuning, const PlannerOptions& options) {
  return !options.lists_pruned &&
         (tuning.tuner_type == "race" || tuning.tuner_type == "model_based");
}

/// Prunes what lies past the cap.
void apply_cap(const TuningOptions& tuning, const PlannerOptions& options,
               std::uint64_t& trials_left, PlannedMember& member) {
  PlannedExperiment& planned = member.planned;
  if (planned.status != PlanStatus::planned || chooses_by_itself(tuning, options)) return;
  if (member.micro_batch_chain) return;  // whether it is run depends on what comes out
  if (trials_left > 0) {
    --trials_left;
    return;
  }
  planned.status = PlanStatus::pruned;
  planned.reason = fmt::format("past the cap of {} trials", *tuning.num_trials);
}

void count(PlannedSpace& planned, PlanStatus status) {
  if (status == PlanStatus::planned) ++planned.planned;
  if (status == PlanStatus::infeasible) ++planned.infeasible;
  if (status == PlanStatus::pruned) ++planned.pruned;
}

/// The first `count` of an order that is drawn from the seed.
template <class Each>
std::vector<Each> drawn(std::vector<Each> all, std::uint64_t count, std::int64_t seed) {
  // Fisher and Yates by hand: std::shuffle's order differs between standard libraries.
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  count = std::min<std::uint64_t>(count, all.size());
  for (std::uint64_t place = 0; place < count; ++place)
    std::swap(all[place], all[place + random() % (all.size() - place)]);
  all.resize(count);
  return all;
}

/// Puts the sizes of each micro-batch chain in order, on the places that the chain has.
void sort_chains(std::vector<Member>& members) {
  std::map<std::uint64_t, std::vector<std::size_t>> places_of_chain;
  for (std::size_t place = 0; place < members.size(); ++place)
    if (const auto chain = members[place].micro_batch_chain)
      places_of_chain[*chain].push_back(place);
  for (const auto& [chain, places] : places_of_chain) {
    std::vector<Member> sorted;
    for (const auto place : places) sorted.push_back(std::move(members[place]));
    std::ranges::sort(sorted, {}, &Member::number);
    for (std::size_t index = 0; index < places.size(); ++index)
      members[places[index]] = std::move(sorted[index]);
  }
}

/// The members that are looked at one by one, in their order, and how many of the others there are.
struct Selection {
  std::vector<Member> members;
  std::uint64_t other_pruned = 0;
  std::uint64_t other_live = 0;
  bool is_cut_short = false;
};

bool is_time_over(const PlannerOptions& options, double share = 1) {
  return options.used_time && options.used_time() >= share;
}

/// Whether selecting is to end. A plan that is only shown keeps half of the time for showing the
/// memory of some members; one that is run is of no use before it is whole.
bool is_selecting_over(const PlannerOptions& options) {
  return is_time_over(options, options.lists_pruned ? 0.5 : 1);
}

Selection select_all(const JobSpec& job, const SearchSpace& space, const PlannerOptions& options) {
  Selection selection;
  space.visit(space.size(), [&](Member&& member) {
    selection.members.push_back(std::move(member));
    selection.is_cut_short = is_selecting_over(options);
    return !selection.is_cut_short;
  });
  if (job.tuning.tuner_type != "random") return selection;
  selection.members = drawn(std::move(selection.members), UINT64_MAX, job.tuning.seed);
  sort_chains(selection.members);
  return selection;
}

/// Goes through the space twice, so that only what is selected is ever held.
Selection select_some(const JobSpec& job, const SearchSpace& space, const PlannerOptions& options) {
  const bool is_random =
      job.tuning.tuner_type == "random" || chooses_by_itself(job.tuning, options);
  const bool takes_pruned = options.lists_pruned && !is_random;
  std::vector<std::uint64_t> numbers;
  Selection selection;
  space.visit(space.size(), [&](const Member& member) {
    ++(member.is_pruned ? selection.other_pruned : selection.other_live);
    const bool is_enough = !is_random && numbers.size() >= options.listed;
    if ((takes_pruned || !member.is_pruned) && !is_enough) numbers.push_back(member.number);
    selection.is_cut_short = is_selecting_over(options);
    return !selection.is_cut_short;
  });
  if (is_random) numbers = drawn(std::move(numbers), options.listed, job.tuning.seed);
  std::unordered_map<std::uint64_t, std::size_t> places;
  std::uint64_t last = 0;
  for (std::size_t place = 0; place < numbers.size(); ++place) {
    places.emplace(numbers[place], place);
    last = std::max(last, numbers[place]);
  }
  selection.members.resize(numbers.size());
  space.visit(numbers.empty() ? 0 : last + 1, [&](Member&& member) {
    const auto place = places.find(member.number);
    if (place != places.end()) {
      --(member.is_pruned ? selection.other_pruned : selection.other_live);
      selection.members[place->second] = std::move(member);
    }
    return !is_time_over(options);  // then nobody looks at the rest
  });
  sort_chains(selection.members);
  return selection;
}

/// Whether a member does what the training command trains today, as far as that is known. A size
/// that is searched is chosen later.
bool is_of_today(const JobSpec& job, const Experiment& experiment, bool is_searched) {
  const TrainingConfig& config = experiment.config;
  if (!job.todays_batch) return false;
  const TodaysBatch& today = *job.todays_batch;
  const bool has_size = is_searched || config.micro_batch == today.micro_batch;
  // Where the global batch is written, or kept, accumulation follows from the others.
  const auto total = job.ds_config.find("train_batch_size");
  const bool has_steps = config.accumulation_steps == today.accumulation_steps ||
                         (total != job.ds_config.end() && total->is_number());
  return has_size && has_steps &&
         config.precision == job.command.precision.value_or(config.precision) &&
         (!job.command.recompute ||
          (config.recompute == Recompute::none) == !*job.command.recompute);
}

/// A ZeRO stage on groups of one shape: DeepSpeed's autotuner looks for sizes of each.
using StageOfShape = std::pair<GroupShape, int>;
StageOfShape stage_of(const PlannedMember& member) {
  const Experiment& experiment = member.planned.experiment;
  return {experiment.shape, experiment.config.zero_stage};
}

/// Whether only runs say what fits: a recorded table is one that nobody has planned, either.
bool only_runs_tell(const JobSpec& job, const PlannedSpace& planned) {
  return planned.is_unplanned || job.workload.kind == WorkloadKind::replay;
}

/// Where the config's own micro-batch fits, smaller ones are out; where only runs tell, they will.
/// Says where smaller ones take its place.
void settle_smaller_sizes(const JobSpec& job, PlannedSpace& planned) {
  if (only_runs_tell(job, planned)) return;
  std::map<StageOfShape, bool> fits;
  for (const PlannedMember& member : planned.members)
    if (member.planned.status != PlanStatus::pruned)
      fits[stage_of(member)] |=
          !member.is_below_lowest && member.planned.status == PlanStatus::planned;
  std::set<int> stages;
  for (PlannedMember& member : planned.members) {
    if (!member.is_below_lowest || member.planned.status == PlanStatus::pruned) continue;
    if (fits[stage_of(member)]) {
      --(member.planned.status == PlanStatus::planned ? planned.planned : planned.infeasible);
      ++planned.pruned;
      member.planned.status = PlanStatus::pruned;
      member.planned.reason =
          fmt::format("the config asks for a micro-batch of {} or more, of which one fits",
                      *lowest_micro_batch(job));
    } else {
      if (member.planned.status == PlanStatus::planned)
        stages.insert(member.planned.experiment.config.zero_stage);
      member.is_below_lowest = false;
    }
  }
  if (!stages.empty())
    planned.warnings.push_back(fmt::format(
        "/train_micro_batch_size_per_gpu: no size from {} on fits at stage {}: smaller ones are "
        "tried there, as DeepSpeed's autotuner does",
        *lowest_micro_batch(job), fmt::join(stages, ", ")));
}

/// Of the sizes of the baseline's configuration that are planned the largest that is at most
/// `size`; where none is, the smallest.
std::size_t member_with_size(const PlannedSpace& planned, std::int64_t size) {
  const std::size_t smallest = *planned.baseline;
  const auto size_of = [&](std::size_t index) {
    return planned.members[index].planned.experiment.config.micro_batch;
  };
  std::size_t chosen = smallest;
  for (std::size_t index = 0; index < planned.members.size(); ++index) {
    const PlannedMember& member = planned.members[index];
    if (member.planned.status == PlanStatus::planned &&
        member.micro_batch_chain == planned.members[smallest].micro_batch_chain &&
        size_of(index) <= size && size_of(index) > size_of(chosen))
      chosen = index;
  }
  return chosen;
}

/// The baseline is run whatever the cap is: the last one before the cap makes room for it.
void keep_within_cap(PlannedSpace& planned, std::size_t baseline) {
  PlannedExperiment& kept = planned.members[baseline].planned;
  if (kept.status == PlanStatus::planned) return;
  const auto last = std::find_if(
      planned.members.rbegin(), planned.members.rend(),
      [](const PlannedMember& member) { return member.planned.status == PlanStatus::planned; });
  if (last == planned.members.rend()) return;
  std::swap(kept.status, last->planned.status);
  std::swap(kept.reason, last->planned.reason);
}

/// Where a member that can run stands: what the command trains comes first, then the space's order.
struct BaselinePlace {
  bool is_other_than_today = true;
  std::uint64_t number = 0;
  std::size_t member = 0;
  auto operator<=>(const BaselinePlace&) const = default;
};

void settle_baseline(const JobSpec& job, std::vector<BaselinePlace> places, PlannedSpace& planned) {
  // The config's own micro-batch comes before those that may take its place.
  std::erase_if(places, [&](const BaselinePlace& place) {
    return planned.members[place.member].is_below_lowest;
  });
  if (places.empty()) return;
  const BaselinePlace first = std::ranges::min(places);
  planned.baseline = first.member;
  const std::uint64_t number = first.is_other_than_today ? first.number : 0;
  const bool has_lowest = lowest_micro_batch(job).has_value();
  if (planned.members[*planned.baseline].micro_batch_chain && !has_lowest) {
    // The smallest stays: it runs soon, and nowhere near the edge of memory.
    if (job.todays_batch)
      planned.baseline = member_with_size(planned, job.todays_batch->micro_batch);
    planned.baseline_grows = planned.is_unplanned && !job.todays_batch;
  }
  keep_within_cap(planned, *planned.baseline);
  if (job.todays_batch && first.is_other_than_today)
    planned.warnings.push_back(
        fmt::format("no member that can run does what the training command trains today: the "
                    "baseline is {}",
                    planned.members[*planned.baseline].planned.experiment.name));
  else if (number > 0)
    planned.warnings.push_back(fmt::format(
        "the configuration with the first candidate of every list can not run: the baseline is the "
        "next one that can, {}",
        planned.members[*planned.baseline].planned.experiment.name));
}

}  // namespace

bool needs_smaller_sizes(const JobSpec& job, const PlannedSpace& space) {
  const auto lowest = lowest_micro_batch(job);
  if (!lowest || *lowest <= job.tuning.min_train_micro_batch_size_per_gpu ||
      job.has_smaller_sizes || space.is_cut_short)
    return false;
  if (only_runs_tell(job, space)) return true;
  std::map<StageOfShape, std::pair<bool, bool>> found;  // something fits; something does not
  for (const PlannedMember& member : space.members) {
    auto& [fits, does_not] = found[stage_of(member)];
    fits = fits || member.planned.status == PlanStatus::planned;
    does_not = does_not || member.planned.status == PlanStatus::infeasible;
  }
  return std::ranges::any_of(
      found, [](const auto& stage) { return !stage.second.first && stage.second.second; });
}

PlannedSpace plan_space(const JobSpec& job, const SearchSpace& space,
                        const WorkspaceSizes& workspaces, const PlannerOptions& options) {
  PlannedSpace planned;
  planned.total = space.size();
  planned.is_unplanned = !is_planned(job);
  planned.device_memory_bytes = options.device_memory_bytes;
  const bool is_large = planned.total > options.max_members;
  Selection selection =
      is_large ? select_some(job, space, options) : select_all(job, space, options);
  planned.is_cut_short = selection.is_cut_short;
  MemoryPredictor predictor(job, workspaces);
  auto trials_left =
      job.tuning.num_trials ? static_cast<std::uint64_t>(*job.tuning.num_trials) : UINT64_MAX;
  std::uint64_t num_live = selection.other_live;
  std::vector<BaselinePlace> places;  // of each that can run, whatever the cap
  for (const Member& member : selection.members) {
    if (is_time_over(options)) {
      planned.is_cut_short = true;
      break;
    }
    if (is_large && trials_left == 0 && !options.lists_pruned) {
      // What lies past the cap is counted, not listed.
      ++(member.is_pruned ? planned.pruned : num_live);
      continue;
    }
    PlannedMember next;
    next.micro_batch_chain = member.micro_batch_chain;
    next.planned.experiment = space.experiment(member);
    next.is_below_lowest =
        job.has_smaller_sizes && member.config.micro_batch < *lowest_micro_batch(job);
    if (member.is_pruned) {
      next.planned.status = PlanStatus::pruned;
      next.planned.reason = member.reason;
    } else {
      decide_feasibility(job, options, predictor, next.planned);
    }
    if (next.planned.status == PlanStatus::planned)
      places.push_back(
          {!is_of_today(job, next.planned.experiment, member.micro_batch_chain.has_value()),
           member.number, planned.members.size()});
    apply_cap(job.tuning, options, trials_left, next);
    count(planned, next.planned.status);
    planned.members.push_back(std::move(next));
  }
  if (job.has_smaller_sizes) settle_smaller_sizes(job, planned);
  settle_baseline(job, places, planned);
  const auto kept = std::min(num_live, trials_left);
  planned.planned += kept;
  planned.pruned += selection.other_pruned + num_live - kept;
  const auto listed = planned.members.size();
  if (planned.is_cut_short) {
    planned.total = planned.planned + planned.infeasible + planned.pruned;
    planned.warnings.push_back(fmt::format(
        "the time limit ended planning: {} of {} members were looked at, {} of them one by one; "
        "shorten the lists, or allow more with --time-limit",
        planned.total, space.size(), listed));
  } else if (is_large && options.lists_pruned) {
    planned.warnings.push_back(fmt::format(
        "of {} members, the first {} are planned one by one and listed", planned.total, listed));
  } else if (is_large && kept > 0) {
    planned.warnings.push_back(
        fmt::format("of {} members, the first {} that can run are tried; {} are left out: shorten "
                    "the lists, or draw a sample with the tuner random and tuner_num_trials",
                    planned.total, listed, kept));
  }
  return planned;
}

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
  /// What was left out of its config.
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
    json::Problems found;
    // The table's pointers start at the config's own root.
    const json::Node node(config.document(), value, "");
    Settings settings(job_->knobs());
    settings.apply(read_settings(job_->knobs(), node, found, job_->auto_values));
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
                                         space.members[*space.baseline].planned.experiment.name));
  return space;
}

}  // namespace dstune
