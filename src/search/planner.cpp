#include "dstune/search/planner.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "memory_predictor.hpp"
#include "packed_members.hpp"
#include "settling.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// Tells whether the tuner, not the plan, chooses the experiments that are tried, and their order.
/// A dry run has no measurements to choose by: it lists the space's order, up to the cap.
bool chooses_by_itself(const TuningOptions& tuning, const PlannerOptions& options) {
  return !options.lists_pruned && tuner_type(tuning.tuner_type).chooses;
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
  planned.prune_kind = PruneKind::cap;
  planned.reason =
      fmt::format("past the limit of {} experiments (tuner_num_trials)", *tuning.num_trials);
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

/// A member as far as the selection asks for it. Its experiment is made when it is planned.
struct Selected {
  std::uint64_t number = 0;
  std::optional<std::uint64_t> micro_batch_chain{};
  TextPool::Place reason = 0;      ///< why it is pruned
  TextPool::Place other_name = 0;  ///< 0: it has its own
  std::uint32_t depth = 0;
  bool is_pruned = false;
  PruneKind prune_kind = PruneKind::refused;
};

/// Puts the sizes of each micro-batch chain in order, on the places that the chain has.
void sort_chains(std::vector<Selected>& members) {
  std::map<std::uint64_t, std::vector<std::size_t>> places_of_chain;
  for (std::size_t place = 0; place < members.size(); ++place)
    if (const auto chain = members[place].micro_batch_chain)
      places_of_chain[*chain].push_back(place);
  for (const auto& [chain, places] : places_of_chain) {
    std::vector<Selected> sorted;
    for (const auto place : places) sorted.push_back(members[place]);
    std::ranges::sort(sorted, {}, &Selected::number);
    for (std::size_t i = 0; i < places.size(); ++i) members[places[i]] = sorted[i];
  }
}

/// The members that are looked at one by one, in their order, and how many of the others there are.
struct Selection {
  std::vector<Selected> members;
  TextPool texts;
  PruneCounts other_pruned;
  std::uint64_t other_live = 0;
  bool is_cut_short = false;

  [[nodiscard]] std::uint64_t& others_like(const auto& member) {
    return member.is_pruned ? other_pruned[member.prune_kind] : other_live;
  }
  [[nodiscard]] Selected selected(const Member& member) {
    return {member.number,
            member.micro_batch_chain,
            texts.add(member.reason),
            member.has_other_name ? texts.add(member.name) : 0,
            member.depth,
            member.is_pruned,
            member.prune_kind};
  }
};

bool is_time_over(const PlannerOptions& options, double share = 1) {
  return options.used_time && options.used_time() >= share;
}

/// Selecting ends then. A plan that is only shown keeps time to show the memory of some members;
/// one that is run is of no use before it is whole.
bool is_selecting_over(const PlannerOptions& options) {
  return is_time_over(options, options.lists_pruned ? options.share_of_selecting : 1);
}

Selection select_all(const JobSpec& job, const SearchSpace& space, const PlannerOptions& options) {
  Selection selection;
  selection.members.reserve(space.size());
  space.visit(space.size(), [&](const Member& member) {
    selection.members.push_back(selection.selected(member));
    selection.is_cut_short = is_selecting_over(options);
    return !selection.is_cut_short;
  });
  if (!tuner_type(job.tuning.tuner_type).is_drawn) return selection;
  selection.members = drawn(std::move(selection.members), UINT64_MAX, job.tuning.seed);
  sort_chains(selection.members);
  return selection;
}

/// Selects the members of the largest product of shorter lists of which at most `options.listed`
/// can run, and as many of its pruned ones. Only they are ever held.
Selection select_by_depth(const SearchSpace& space, const PlannerOptions& options) {
  Selection selection;
  std::uint32_t depth = UINT32_MAX;  // of what is still kept
  const auto shorten = [&] {
    std::map<std::uint32_t, std::uint64_t> live;  // by depth
    for (const Selected& member : selection.members)
      if (!member.is_pruned) ++live[member.depth];
    std::uint64_t sum = 0;
    for (const auto& [next, count] : live) {
      sum += count;
      if (sum > count && sum > options.listed) {
        depth = next - 1;
        break;
      }
    }
    std::uint64_t num_live = 0, num_pruned = 0;
    std::erase_if(selection.members, [&](const Selected& member) {
      return member.depth > depth || ++(member.is_pruned ? num_pruned : num_live) > options.listed;
    });
  };
  space.visit(space.size(), [&](const Member& member) {
    ++selection.others_like(member);
    if (member.depth <= depth) {
      selection.members.push_back(selection.selected(member));
      if (selection.members.size() > 4 * options.listed) shorten();
    }
    selection.is_cut_short = is_selecting_over(options);
    return !selection.is_cut_short;
  });
  shorten();
  for (const Selected& member : selection.members) --selection.others_like(member);
  return selection;
}

/// Goes through the space twice, so that only what is selected is ever held.
Selection select_some(const JobSpec& job, const SearchSpace& space, const PlannerOptions& options) {
  const bool is_drawn = tuner_type(job.tuning.tuner_type).is_drawn;
  if (options.lists_pruned && !is_drawn) return select_by_depth(space, options);
  const bool is_random = is_drawn || chooses_by_itself(job.tuning, options);
  std::vector<std::uint64_t> numbers;
  Selection selection;
  space.visit(space.size(), [&](const Member& member) {
    ++selection.others_like(member);
    const bool is_enough = !is_random && numbers.size() >= options.listed;
    if (!member.is_pruned && !is_enough) numbers.push_back(member.number);
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
  space.visit(numbers.empty() ? 0 : last + 1, [&](const Member& member) {
    const auto place = places.find(member.number);
    if (place != places.end()) {
      --selection.others_like(member);
      selection.members[place->second] = selection.selected(member);
    }
    return !is_time_over(options);  // then nobody looks at the rest
  });
  sort_chains(selection.members);
  return selection;
}

PlannedMember planned_member(const JobSpec& job, const MemberMaker& maker,
                             const PlannerOptions& options, const Selected& member,
                             const TextPool& texts, MemoryPredictor& predictor) {
  PlannedMember result;
  result.micro_batch_chain = member.micro_batch_chain;
  Experiment& experiment = result.planned.experiment = maker.experiment(member.number);
  if (member.other_name != 0) experiment.name = texts.text(member.other_name);
  result.is_below_lowest =
      job.has_smaller_sizes && experiment.config.micro_batch < *lowest_micro_batch(job);
  if (member.is_pruned) {
    result.planned.status = PlanStatus::pruned;
    result.planned.reason = texts.text(member.reason);
    result.planned.prune_kind = member.prune_kind;
  } else {
    decide_feasibility(job, options, predictor, result.planned);
  }
  return result;
}

/// Says which members of a space are not listed; `kept`: those that are planned nevertheless.
void warn_of_unlisted(const SearchSpace& space, const PlannerOptions& options, bool is_large,
                      std::uint64_t kept, PlannedSpace& planned) {
  const std::size_t listed = planned.members.size();
  if (planned.is_cut_short) {
    planned.warnings.push_back(fmt::format(
        "the time limit ended planning: {} of {} members were looked at, {} of them one by one; "
        "shorten the lists, or allow more with --time-limit",
        planned.total, space.size(), listed));
  } else if (is_large && options.lists_pruned) {
    std::size_t num_judged = 0;
    for (std::size_t member = 0; member < listed; ++member)
      num_judged += planned.status(member) != PlanStatus::pruned ? 1 : 0;
    planned.warnings.push_back(
        fmt::format("{} of {} members are judged one by one: above {} the lists are shortened, and "
                    "last those that decide about memory",
                    num_judged, planned.total, options.max_members));
  } else if (is_large && kept > 0) {
    planned.warnings.push_back(
        fmt::format("the first {} that can run, of {} members, are tried; {} are left out: shorten "
                    "the lists, or draw a sample with the tuner random and tuner_num_trials",
                    listed, planned.total, kept));
  }
}

}  // namespace

SinglePlanner::SinglePlanner(const JobSpec& job, const WorkspaceSizes& workspaces,
                             const PlannerOptions& options)
    : job_(&job),
      options_(&options),
      predictor_(std::make_unique<MemoryPredictor>(job, workspaces,
                                                   options.forecasts.judges_memory_here)) {}
SinglePlanner::~SinglePlanner() = default;

PlannedExperiment SinglePlanner::plan(Experiment experiment) {
  PlannedExperiment planned;
  planned.experiment = std::move(experiment);
  decide_feasibility(*job_, *options_, *predictor_, planned);
  return planned;
}

PlannedSpace plan_space(const JobSpec& job, const SearchSpace& space,
                        const WorkspaceSizes& workspaces, const PlannerOptions& options) {
  PlannedSpace planned;
  planned.searched = space.searched();
  planned.total = space.size();
  planned.is_unplanned = !is_planned(job);
  planned.only_runs_tell = planned.is_unplanned || options.forecasts.only_runs_tell;
  planned.device_memory_bytes = options.device_memory_bytes;
  const bool is_large = planned.total > options.max_members;
  Selection selection =
      is_large ? select_some(job, space, options) : select_all(job, space, options);
  planned.is_cut_short = selection.is_cut_short;
  MemoryPredictor predictor(job, workspaces, options.forecasts.judges_memory_here);
  auto trials_left =
      job.tuning.num_trials ? static_cast<std::uint64_t>(*job.tuning.num_trials) : UINT64_MAX;
  std::uint64_t num_live = selection.other_live;
  std::vector<PossibleBaseline> possible;  // of each that can run, whatever the cap
  const MemberMaker maker(space);
  auto members = std::make_unique<PackedMembers>(maker, selection.members.size());
  for (const Selected& member : selection.members) {
    if (is_time_over(options)) {
      planned.is_cut_short = true;
      break;
    }
    if (is_large && trials_left == 0 && !options.lists_pruned) {
      // Members past the cap are counted, not listed.
      if (member.is_pruned)
        count_pruned(planned, member.prune_kind);
      else
        ++num_live;
      continue;
    }
    PlannedMember next = planned_member(job, maker, options, member, selection.texts, predictor);
    if (next.planned.status == PlanStatus::planned) {
      const Experiment& experiment = next.planned.experiment;
      const bool is_today = is_of_today(job, experiment, member.micro_batch_chain.has_value());
      const bool has_other_ranks = is_today && experiment.shape.size() != job.todays_batch->ranks;
      possible.push_back({!is_today, has_other_ranks, member.number, members->size()});
    }
    apply_cap(job.tuning, options, trials_left, next);
    count(planned, next.planned);
    members->add(member.number, std::string(selection.texts.text(member.other_name)), next);
  }
  planned.members = PackedList<PlannedMember>(std::move(members));
  if (job.has_smaller_sizes) settle_smaller_sizes(job, planned);
  settle_baseline(job, possible, planned);
  const auto kept = std::min(num_live, trials_left);
  planned.planned += kept;
  for (const auto& [kind, number] : selection.other_pruned) count_pruned(planned, kind, number);
  if (num_live > kept) count_pruned(planned, PruneKind::cap, num_live - kept);
  if (planned.is_cut_short) planned.total = planned.planned + planned.infeasible + planned.pruned;
  warn_of_unlisted(space, options, is_large, kept, planned);
  return planned;
}

}  // namespace dstune
