#include "dstune/search/planner.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <unordered_map>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "dstune/plan/memory.hpp"
#include "memory_predictor.hpp"

namespace dstune {

namespace {

/// The largest first.
std::string parts_text(const std::map<std::string, std::int64_t>& parts) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) sorted.emplace_back(bytes, name);
  }
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (const auto& [bytes, name] : sorted) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(bytes));
  }
  return text;
}

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
std::vector<std::uint64_t> drawn(std::vector<std::uint64_t> numbers, std::uint64_t count,
                                 std::int64_t seed) {
  // Fisher and Yates by hand: std::shuffle's order differs between standard libraries.
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  count = std::min<std::uint64_t>(count, numbers.size());
  for (std::uint64_t place = 0; place < count; ++place)
    std::swap(numbers[place], numbers[place + random() % (numbers.size() - place)]);
  numbers.resize(count);
  return numbers;
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
    std::sort(sorted.begin(), sorted.end(),
              [](const Member& one, const Member& other) { return one.number < other.number; });
    for (std::size_t index = 0; index < places.size(); ++index)
      members[places[index]] = std::move(sorted[index]);
  }
}

/// The members that are looked at one by one, in their order, and how many of the others there are.
struct Selection {
  std::vector<Member> members;
  std::uint64_t other_pruned = 0;
  std::uint64_t other_live = 0;
};

Selection select_all(const JobSpec& job, const SearchSpace& space) {
  Selection selection{space.members()};
  if (job.tuning.tuner_type != "random") return selection;
  std::vector<std::uint64_t> numbers;
  for (const Member& member : selection.members) numbers.push_back(member.number);
  std::vector<Member> members;
  for (const auto number : drawn(numbers, numbers.size(), job.tuning.seed))
    members.push_back(std::move(selection.members[number]));
  selection.members = std::move(members);
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
    return true;
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
    if (place == places.end()) return true;
    --(member.is_pruned ? selection.other_pruned : selection.other_live);
    selection.members[place->second] = std::move(member);
    return true;
  });
  sort_chains(selection.members);
  return selection;
}

}  // namespace

void decide_feasibility(const JobSpec& job, const PlannerOptions& options,
                        MemoryPredictor& predictor, PlannedExperiment& planned) {
  if (job.workload.kind == WorkloadKind::plugin) return;  // nobody here knows what it does
  const auto infeasible = [&](const std::string& reason) {
    planned.status = PlanStatus::infeasible;
    planned.reason += (planned.reason.empty() ? "" : "; ") + reason;
  };
  const Experiment& experiment = planned.experiment;
  const int group_size = experiment.shape.size();
  std::string violation = partition_violation(experiment.config, group_size);
  if (violation.empty()) violation = model_violation(job.model, experiment.config, group_size);
  if (!violation.empty()) {
    if (job.workload.kind == WorkloadKind::transformer) infeasible(violation);
    return;
  }
  planned.predicted = predictor.predict(experiment);
  if (planned.predicted.target_memory_bytes > 0) {
    planned.predicted.target_memory_bytes = std::max<std::int64_t>(
        1, planned.predicted.target_memory_bytes + options.target_offset_bytes);
  }
  if (job.workload.kind != WorkloadKind::transformer) return;
  const auto& predicted = planned.predicted;
  const std::int64_t device_memory_bytes = options.device_memory_bytes;
  std::map<std::string, std::int64_t> on_device = predicted.categories;
  for (const auto& [name, bytes] : predicted.host_categories) on_device[name] -= bytes;
  const auto check = [&](std::int64_t needed, std::int64_t available, const char* memory,
                         const std::map<std::string, std::int64_t>& parts) {
    if (needed <= available) return;
    infeasible(fmt::format("needs {} of {} on the {} ({})", format_bytes(needed),
                           format_bytes(available), memory, parts_text(parts)));
  };
  check(predicted.peak_memory_bytes - predicted.host_memory_bytes, device_memory_bytes, "device",
        on_device);
  check(predicted.host_memory_bytes, options.host_memory_bytes, "host", predicted.host_categories);
  const TrainingConfig& config = planned.experiment.config;
  const auto check_disk = [&](std::int64_t of_rank, const char* where) {
    if (of_rank == 0 || !options.free_disk_bytes) return;
    const std::string& folder = config.disk.folder;
    const std::int64_t needed = of_rank * experiment.shape.num_gpus;
    const std::int64_t available = options.free_disk_bytes(folder);
    if (needed <= available) return;
    infeasible(fmt::format("needs {} of {} on the disk of {} for the ranks of a host{}",
                           format_bytes(needed), format_bytes(available), folder, where));
  };
  check_disk(predicted.disk_bytes, "");
  const bool is_too_large = predicted.target_memory_bytes > device_memory_bytes;
  if (!is_too_large && !is_optimizer_offloaded(config) && !are_parameters_offloaded(config)) return;
  const auto target = target_memory(job.model, config, planned.experiment.shape.size(), job.target);
  if (is_too_large) {
    infeasible(fmt::format("needs {} of {} in the training that it is for ({})",
                           format_bytes(predicted.target_memory_bytes),
                           format_bytes(device_memory_bytes), parts_text(target.parts)));
  }
  if (target.host_bytes > options.host_memory_bytes) {
    infeasible(fmt::format("needs {} of {} on the host in the training that it is for",
                           format_bytes(target.host_bytes),
                           format_bytes(options.host_memory_bytes)));
  }
  check_disk(target.disk_bytes, " in the training that it is for");
}

PlannedSpace plan_space(const JobSpec& job, const SearchSpace& space,
                        const WorkspaceSizes& workspaces, const PlannerOptions& options) {
  PlannedSpace planned;
  planned.total = space.size();
  const bool is_large = planned.total > options.max_members;
  Selection selection = is_large ? select_some(job, space, options) : select_all(job, space);
  MemoryPredictor predictor(job, workspaces);
  auto trials_left =
      job.tuning.num_trials ? static_cast<std::uint64_t>(*job.tuning.num_trials) : UINT64_MAX;
  std::uint64_t num_live = selection.other_live;
  std::uint64_t own_number = UINT64_MAX;
  for (const Member& member : selection.members) {
    if (is_large && trials_left == 0 && !options.lists_pruned) {
      // What lies past the cap is counted, not listed.
      ++(member.is_pruned ? planned.pruned : num_live);
      continue;
    }
    PlannedMember next;
    next.micro_batch_chain = member.micro_batch_chain;
    next.planned.experiment = space.experiment(member);
    if (member.is_pruned) {
      next.planned.status = PlanStatus::pruned;
      next.planned.reason = member.reason;
    } else {
      decide_feasibility(job, options, predictor, next.planned);
    }
    if (next.planned.status == PlanStatus::planned && member.number < own_number) {
      own_number = member.number;
      planned.baseline = planned.members.size();
    }
    apply_cap(job.tuning, options, trials_left, next);
    count(planned, next.planned.status);
    planned.members.push_back(std::move(next));
  }
  const auto kept = std::min(num_live, trials_left);
  planned.planned += kept;
  planned.pruned += selection.other_pruned + num_live - kept;
  const auto listed = planned.members.size();
  if (is_large && options.lists_pruned) {
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

Prediction predict_memory(const JobSpec& job, const Experiment& experiment,
                          const WorkspaceSizes& workspaces) {
  return MemoryPredictor(job, workspaces).predict(experiment);
}

}  // namespace dstune
