#include "answer.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "dstune/base/text.hpp"
#include "placed.hpp"
#include "words.hpp"

namespace dstune {

namespace {

using plan_words::judged_bytes;
using plan_words::verdict_of;

bool is_listed(const PlannedExperiment& planned) {
  return planned.status != PlanStatus::pruned;
}

/// Tells whether each group shape trains one global batch, by several micro-batches.
bool has_one_batch(const DryRun& plan) {
  std::map<GroupShape, std::pair<std::int64_t, std::int64_t>> batch_and_size;
  bool has_several_sizes = false;
  for (const PlannedExperiment& planned : plan.experiments) {
    if (!is_listed(planned)) continue;
    const Experiment& experiment = planned.experiment;
    const std::int64_t batch = batch_of(experiment), size = experiment.config.micro_batch;
    const auto [place, is_new] = batch_and_size.try_emplace(experiment.shape, batch, size);
    if (place->second.first != batch) return false;
    has_several_sizes = has_several_sizes || place->second.second != size;
  }
  return has_several_sizes;
}

std::vector<SizeChain> chains_of(const DryRun& plan) {
  const bool is_one_batch = has_one_batch(plan);
  std::vector<SizeChain> chains;
  std::unordered_map<Placed, std::size_t, PlacedHash> places;
  for (std::size_t member = 0; member < plan.experiments.size(); ++member) {
    const PlannedExperiment& planned = plan.experiments[member];
    if (!is_listed(planned)) continue;
    Placed rest{planned.experiment.config, planned.experiment.shape};
    rest.config.micro_batch = 1;
    if (is_one_batch) rest.config.accumulation_steps = 1;
    const auto [place, is_new] = places.try_emplace(std::move(rest), chains.size());
    if (is_new) chains.emplace_back();
    chains[place->second].members.push_back(member);
  }
  return chains;
}

/// Sorts a chain and finds its largest size that fits, and the sizes that nobody needs to see.
void judge_chain(const DryRun& plan, SizeChain& chain) {
  const auto size_of = [&](std::size_t member) {
    return plan.experiments[member].experiment.config.micro_batch;
  };
  std::ranges::stable_sort(chain.members, {}, size_of);
  std::vector<std::int64_t> misfits;
  std::size_t behind_last = 0;  // of what may fit
  for (std::size_t place = 0; place < chain.members.size(); ++place) {
    const std::size_t member = chain.members[place];
    const MemoryVerdict verdict = verdict_of(plan.experiments[member]);
    if (verdict == MemoryVerdict::fits) chain.largest = member;
    if (verdict != MemoryVerdict::does_not_fit) behind_last = place + 1;
  }
  for (std::size_t place = behind_last; place < chain.members.size(); ++place) {
    const std::int64_t size = size_of(chain.members[place]);
    if (misfits.empty() || misfits.back() != size) misfits.push_back(size);
    if (misfits.size() > 2) chain.hopeless.push_back(chain.members[place]);
  }
}

bool is_faster(const PlannedExperiment& one, const PlannedExperiment& other) {
  return ranked_throughput(one.predicted) > ranked_throughput(other.predicted);
}

/// The reason without what is in brackets, and without amounts and names, which differ.
std::string common_part(std::string_view reason) {
  std::string text;
  bool is_behind_number = false;
  std::ptrdiff_t depth = 0;
  for (const std::string_view word : split(reason, ' ')) {
    const bool is_inside = depth > 0 || word.starts_with('(');
    depth += std::ranges::count(word, '(') - std::ranges::count(word, ')');
    const bool has_digit = word.find_first_of("0123456789") != word.npos;
    const bool is_unit = is_behind_number && trimmed(word, ",;.:").ends_with('B');
    is_behind_number = has_digit;
    if (!is_inside && !is_unit) text += (has_digit ? "#" : std::string(word)) + " ";
  }
  return text;
}

/// Gathers reasons that differ in numbers and names alone.
class Reasons {
 public:
  Reasons(const DryRun& plan) : plan_(&plan) {}

  void add(std::size_t member, const std::string& reason) {
    const auto [place, is_new] = places_.try_emplace(common_part(reason), reasons_.size());
    if (is_new) reasons_.push_back({reason, member});
    SharedReason& shared = reasons_[place->second];
    ++shared.count;
    if (bytes_of(member) >= bytes_of(shared.example)) return;
    shared.example = member;
    shared.text = reason;
  }

  [[nodiscard]] std::vector<SharedReason> most_frequent_first() && {
    std::ranges::stable_sort(reasons_, std::ranges::greater(), &SharedReason::count);
    return std::move(reasons_);
  }

 private:
  [[nodiscard]] std::int64_t bytes_of(std::size_t member) const {
    return judged_bytes(plan_->experiments[member].predicted);
  }

  const DryRun* plan_;
  std::map<std::string, std::size_t> places_;
  std::vector<SharedReason> reasons_;
};

/// Goes through the members once: counts, reasons, and the members that are named.
void survey(const DryRun& plan, PlanAnswer& answer) {
  Reasons misfits(plan), pruned(plan);
  const auto take_where = [&](std::optional<std::size_t>& best, std::size_t member, auto&& beats) {
    if (!best || beats(plan.experiments[member], plan.experiments[*best])) best = member;
  };
  for (std::size_t member = 0; member < plan.experiments.size(); ++member) {
    const PlannedExperiment& planned = plan.experiments[member];
    if (!is_listed(planned)) {
      pruned.add(member, planned.reason);
      continue;
    }
    if (judged_bytes(planned.predicted) > 0)
      take_where(answer.least, member, [](const auto& one, const auto& other) {
        return judged_bytes(one.predicted) < judged_bytes(other.predicted);
      });
    switch (verdict_of(planned)) {
      case MemoryVerdict::fits:
        ++answer.num_fitting;
        if (ranked_throughput(planned.predicted)) take_where(answer.fastest, member, is_faster);
        break;
      case MemoryVerdict::edge:
        answer.edge.push_back(member);
        break;
      case MemoryVerdict::does_not_fit:
        ++answer.num_misfits;
        misfits.add(member, planned.predicted.because.empty()
                                ? plan_words::without_brackets(planned.reason)
                                : planned.predicted.because);
        break;
      case MemoryVerdict::unknown:
        ++answer.num_unknown;
        break;
    }
  }
  answer.misfits = std::move(misfits).most_frequent_first();
  answer.pruned = std::move(pruned).most_frequent_first();
}

/// Sorts chains by the largest micro-batch that fits; of equal ones by speed, then by memory.
void sort_chains_by_size(const DryRun& plan, PlanAnswer& answer) {
  const auto is_larger = [&](const SizeChain& one, const SizeChain& other) {
    if (!one.largest || !other.largest) return one.largest.has_value() && !other.largest;
    const PlannedExperiment &first = plan.experiments[*one.largest],
                            &second = plan.experiments[*other.largest];
    const std::int64_t size = first.experiment.config.micro_batch;
    const std::int64_t other_size = second.experiment.config.micro_batch;
    if (size != other_size) return size > other_size;
    if (is_faster(first, second) || is_faster(second, first)) return is_faster(first, second);
    return judged_bytes(first.predicted) < judged_bytes(second.predicted);
  };
  std::ranges::stable_sort(answer.chains, is_larger);
  if (!answer.chains.empty()) answer.largest = answer.chains.front().largest;
}

/// The next size of the configuration with the largest micro-batch; where there is none the member
/// with the least memory of those that do not fit.
std::optional<std::size_t> smallest_misfit(const DryRun& plan, const PlanAnswer& answer) {
  const auto does_not_fit = [&](std::size_t member) {
    return verdict_of(plan.experiments[member]) == MemoryVerdict::does_not_fit;
  };
  if (answer.largest) {
    const std::vector<std::size_t>& members = answer.chains.front().members;
    const auto next = std::ranges::find_if(std::ranges::find(members, *answer.largest),
                                           members.end(), does_not_fit);
    if (next != members.end()) return *next;
  }
  std::optional<std::size_t> smallest;
  for (const SharedReason& reason : answer.misfits)
    if (!smallest || judged_bytes(plan.experiments[reason.example].predicted) <
                         judged_bytes(plan.experiments[*smallest].predicted))
      smallest = reason.example;
  return smallest;
}

ChangeTask task_of(const DryRun& plan, const PlanAnswer& answer) {
  ChangeTask task{.subject = smallest_misfit(plan, answer), .least = answer.least};
  if (has_no_larger_size(answer)) task.largest = answer.largest;
  for (std::size_t member = 0; member < plan.experiments.size(); ++member) {
    const PlannedExperiment& planned = plan.experiments[member];
    if (verdict_of(planned) != MemoryVerdict::fits) continue;
    const auto cost = [&](std::size_t place) {
      const PlannedExperiment& at = plan.experiments[place];
      return std::pair(at.experiment.shape.size(), judged_bytes(at.predicted));
    };
    if (!task.fewest || cost(member) < cost(*task.fewest)) task.fewest = member;
  }
  return task;
}

}  // namespace

bool has_no_larger_size(const PlanAnswer& answer) {
  return answer.largest && answer.chains.front().members.back() == *answer.largest;
}

PlanAnswer answer_of(const DryRun& plan) {
  PlanAnswer answer;
  answer.chains = chains_of(plan);
  for (SizeChain& chain : answer.chains) judge_chain(plan, chain);
  survey(plan, answer);
  sort_chains_by_size(plan, answer);
  answer.changes = try_changes(plan, task_of(plan, answer));
  return answer;
}

}  // namespace dstune
