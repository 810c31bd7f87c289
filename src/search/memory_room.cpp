#include "memory_room.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "dstune/base/hash.hpp"
#include "dstune/base/text.hpp"
#include "measured_memory.hpp"

namespace dstune {

namespace {

/// Members that differ in the micro-batch alone share it.
Digest chain_key(const Experiment& experiment) {
  TrainingConfig config = experiment.config;
  config.micro_batch = 1;
  return digest128(fmt::format("{} {} {} ", experiment.shape.num_gpus, experiment.shape.num_nodes,
                               config_without_amounts(experiment).dump()) +
                   bytes_of(config));
}

}  // namespace

MemoryRoom::MemoryRoom(const PlannedSpace& space, const Policy::Memory& policy)
    : space_(&space), policy_(&policy) {
  chain_of_.assign(space.members.size(), no_chain);
  planned_bytes_.resize(space.members.size());
  std::unordered_map<Digest, std::uint32_t, DigestHash> known;
  auto next = space.members.begin();
  for (std::size_t member = 0; member < space.members.size(); ++member, ++next) {
    if (space.status(member) != PlanStatus::planned) continue;
    const PlannedExperiment& planned = next->planned;
    const auto [found, is_new] = known.try_emplace(chain_key(planned.experiment),
                                                   static_cast<std::uint32_t>(chains_.size()));
    if (is_new) chains_.emplace_back();
    chains_[found->second].members.push_back(member);
    chain_of_[member] = found->second;
    planned_bytes_[member] = static_cast<double>(planned.predicted.peak_memory_bytes -
                                                 planned.predicted.host_memory_bytes);
    most_planned_bytes_ = std::max(most_planned_bytes_, planned_bytes(member));
  }
  for (Chain& chain : chains_)
    std::ranges::stable_sort(chain.members, {},
                             [&](std::size_t member) { return space_->micro_batch(member); });
}

void MemoryRoom::observe(std::size_t member, const Observation& observation) {
  running_.erase(member);
  if (chain_of_[member] == no_chain) return;
  Chain& chain = chains_[chain_of_[member]];
  const std::int64_t micro_batch = space_->micro_batch(member);
  if (observation.status == Status::out_of_memory) {
    ran_out_.insert(member);
    chain.ran_out = std::min(chain.ran_out, micro_batch);
  } else if (observation.value) {
    ran_.insert(member);
    chain.ran = std::max(chain.ran, micro_batch);
    if (observation.device_bytes > 0) {
      const auto bytes = static_cast<double>(observation.device_bytes);
      took_bytes_[member] = bytes;
      std::erase_if(chain.sizes, [&](const Size& one) { return one.micro_batch == micro_batch; });
      chain.sizes.insert(std::ranges::upper_bound(chain.sizes, micro_batch, {}, &Size::micro_batch),
                         Size{micro_batch, planned_bytes(member), bytes});
    }
  } else {
    return;
  }
  learn_factors();
  learn_limits();
}

/// The middle one of what others took, by what was planned: of the same stage and recompute where
/// there are some.
double MemoryRoom::factor_of_others(std::size_t member) const {
  const TrainingConfig& own = space_->experiment(member).config;
  const auto alike = factors_.find(std::pair(own.zero_stage, own.recompute));
  return alike != factors_.end() ? alike->second : factor_;
}

void MemoryRoom::learn_factors() {
  std::map<std::pair<int, Recompute>, std::vector<double>> alike;
  std::vector<double> all;
  for (const Chain& chain : chains_) {
    if (chain.sizes.empty() || chain.sizes.back().planned_bytes <= 0) continue;
    const double factor = chain.sizes.back().bytes / chain.sizes.back().planned_bytes;
    const TrainingConfig& config = space_->experiment(chain.members.front()).config;
    alike[{config.zero_stage, config.recompute}].push_back(factor);
    all.push_back(factor);
  }
  const auto middle_of = [](std::vector<double>& factors) {
    std::ranges::sort(factors);
    return factors[factors.size() / 2];
  };
  factor_ = all.empty() ? 1 : middle_of(all);
  factors_.clear();
  for (auto& [kind, factors] : alike) factors_[kind] = middle_of(factors);
}

MemoryRoom::Need MemoryRoom::need_of(std::size_t member) const {
  if (took_bytes_.empty())
    return {planned_bytes(member), ran_.empty() ? policy_->doubt_by_plan : 1};
  if (const auto took = took_bytes_.find(member); took != took_bytes_.end())
    return {took->second, 1};
  const std::vector<Size>& sizes = chain_of(member).sizes;
  if (sizes.empty())
    return {planned_bytes(member) * factor_of_others(member), policy_->doubt_by_others};
  const Size& largest = sizes.back();
  const bool is_far = space_->micro_batch(member) > policy_->far_from * largest.micro_batch;
  const double further_bytes = planned_bytes(member) - largest.planned_bytes;
  if (sizes.size() > 1) {
    const Size& smaller = sizes[sizes.size() - 2];
    const double slope =
        (largest.bytes - smaller.bytes) / (largest.planned_bytes - smaller.planned_bytes);
    if (std::isfinite(slope) && slope > 0)
      return {std::max(0.0, largest.bytes + slope * further_bytes),
              is_far ? policy_->doubt_by_two_far : policy_->doubt_by_two};
  }
  const double factor = largest.planned_bytes > 0 ? largest.bytes / largest.planned_bytes : 1;
  return {planned_bytes(member) * factor,
          is_far ? policy_->doubt_by_one_far : policy_->doubt_by_one};
}

/// More was taken than planned, so what was planned to fit may not.
void MemoryRoom::learn_limit_of_device() {
  const double limit_bytes =
      policy_->surely_above * static_cast<double>(space_->device_memory_bytes);
  double most_bytes = 0;
  double largest_factor = 0;
  for (const auto& [member, bytes] : took_bytes_) {
    most_bytes = std::max(most_bytes, bytes);
    if (planned_bytes(member) > 0)
      largest_factor = std::max(largest_factor, bytes / planned_bytes(member));
  }
  const bool is_known = limit_bytes > 0 && most_bytes <= limit_bytes;
  if (!is_known || largest_factor * most_planned_bytes_ <= limit_bytes) return;
  for (const Chain& chain : chains_) {
    Limit& limit = limits_[space_->shape(chain.members.front())];
    limit.ran_out_bytes = std::min(limit.ran_out_bytes, limit_bytes);
    if (limit_bytes >= limit.surely_out_bytes) continue;
    limit.surely_out_bytes = limit_bytes;
    limit.is_of_device = true;
  }
}

void MemoryRoom::learn_limits() {
  limits_.clear();
  for (const std::size_t member : ran_out_) {
    Limit& limit = limits_[space_->shape(member)];
    limit.has_run_out = true;
    const Need need = need_of(member);
    if (need.bytes * need.doubt < limit.surely_out_bytes) {
      limit.surely_out_bytes = need.bytes * need.doubt;
      limit.ran_out = member;
    }
    limit.ran_out_bytes = std::min(limit.ran_out_bytes, need.bytes);
  }
  learn_limit_of_device();
  for (auto& [shape, limit] : limits_) {
    for (const std::size_t member : ran_)
      if (space_->shape(member) == shape)
        limit.ran_bytes = std::max(limit.ran_bytes, need_of(member).bytes);
    // A member that ran had room: where the order of needs is not that of the plan, it is not
    // believed.
    if (took_bytes_.empty() && limit.ran_bytes > limit.ran_out_bytes)
      limit.surely_out_bytes *= policy_->surely_above * limit.ran_bytes / limit.ran_out_bytes;
    limit.surely_out_bytes = std::max(limit.surely_out_bytes, limit.ran_bytes);
    limit.ran_out_bytes = std::max(limit.ran_out_bytes, limit.ran_bytes);
  }
}

std::string MemoryRoom::refusal(std::size_t member) const {
  const Chain& chain = chain_of(member);
  const std::int64_t micro_batch = space_->micro_batch(member);
  const auto by = [&](std::size_t other) {
    return fmt::format("needs no less memory than {}, which ran out of memory",
                       space_->experiment(other).name);
  };
  for (const std::size_t other : ran_out_)
    if (other != member &&
        surely_needs_no_less(space_->experiment(member), space_->experiment(other)))
      return by(other);
  const auto found = limits_.find(space_->experiment(member).shape);
  if (micro_batch <= chain.ran || found == limits_.end()) return "";
  const Limit& limit = found->second;
  const Need need = need_of(member);
  if (need.bytes < limit.surely_out_bytes * need.doubt) return "";
  if (!limit.is_of_device) return by(limit.ran_out);
  return fmt::format(
      "needs about {}, but the device has {} (judged by the memory that others used)",
      format_bytes(static_cast<std::int64_t>(need.bytes)),
      format_bytes(space_->device_memory_bytes));
}

bool MemoryRoom::is_beyond_middle(std::size_t member) const {
  const auto found = limits_.find(space_->experiment(member).shape);
  if (found == limits_.end()) return false;
  const Limit& limit = found->second;
  // The plan, as it is corrected, is believed until one has run out.
  if (!limit.has_run_out) return need_of(member).bytes >= limit.ran_out_bytes;
  double out_bytes = limit.ran_out_bytes;
  for (const std::size_t other : running_)
    if (other != member && space_->experiment(other).shape == space_->experiment(member).shape)
      if (const double bytes = need_of(other).bytes; bytes > limit.ran_bytes)
        out_bytes = std::min(out_bytes, bytes);
  const Chain& chain = chain_of(member);
  const auto size_of = [&](std::size_t each) { return space_->micro_batch(each); };
  auto runs = static_cast<double>(chain.ran);
  double fails = chain.ran_out == INT64_MAX ? HUGE_VAL : static_cast<double>(chain.ran_out);
  // A size that ran out although it seemed to need less than others took: only own runs count.
  const auto smallest_out = std::ranges::find(chain.members, chain.ran_out, size_of);
  const bool is_trusted =
      smallest_out == chain.members.end() ||
      (chain.sizes.size() > 1 && need_of(*smallest_out).bytes > limit.ran_bytes);
  for (const std::size_t each : chain.members) {
    const double bytes = need_of(each).bytes;
    const auto size = static_cast<double>(size_of(each));
    if (is_trusted && bytes <= limit.ran_bytes && size < fails) runs = std::max(runs, size);
    if (bytes >= out_bytes && size > runs) {
      fails = std::min(fails, size);
      break;
    }
  }
  if (!std::isfinite(fails)) {
    const std::size_t last = chain.members.back();
    const double bytes = need_of(last).bytes;
    if (bytes <= 0 || !std::isfinite(out_bytes)) return false;
    fails = static_cast<double>(size_of(last)) * std::max(1.0, out_bytes / bytes);
  }
  const auto size = static_cast<double>(size_of(member));
  runs = std::max(1.0, std::min(runs, fails));
  double middle = runs * std::pow(fails / runs, policy_->begun_share);
  if (static_cast<int>(ran_out_.size()) < policy_->num_halvings)
    middle = std::max(middle, fails / 2);
  if (size <= middle) return false;
  const auto above = std::ranges::find_if(
      chain.members, [&](std::size_t each) { return static_cast<double>(size_of(each)) > runs; });
  return above == chain.members.end() || size_of(*above) < size_of(member);
}

std::vector<std::size_t> MemoryRoom::sizes_above(std::size_t member) const {
  const Chain& chain = chain_of(member);
  std::vector<std::size_t> above;
  for (const std::size_t each : chain.members)
    if (space_->micro_batch(each) > chain.ran) above.push_back(each);
  return above;
}

}  // namespace dstune
