#include "measured_memory.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/settings.hpp"

namespace dstune {

namespace {

/// Pointers to amounts in a DeepSpeed config of which more needs no less memory.
const std::vector<json::Value::json_pointer>& amounts_of_configs() {
  static const auto all = [] {
    std::vector<json::Value::json_pointer> pointers;
    for (const Knob& knob : every_knob().knobs())
      if (knob.grows_memory) pointers.emplace_back(std::string(knob.pointer));
    return pointers;
  }();
  return all;
}

/// Tells for each member of TrainingConfig, in their order, whether a larger value never needs less
/// memory.
const std::vector<bool>& amounts_of_members() {
  static const auto all = [] {
    std::set<std::string_view> names = {"accumulation_steps"};
    for (const Knob& knob : every_knob().knobs())
      if (knob.grows_memory) names.insert(knob.member);
    std::vector<bool> are_amounts;
    const TrainingConfig unset;
    for_each_member(unset, [&](std::string_view name, const auto&) {
      are_amounts.push_back(names.contains(name));
    });
    return are_amounts;
  }();
  return all;
}

}  // namespace

json::Value config_without_amounts(const Experiment& experiment) {
  json::Value rest = experiment.ds_config;
  if (!rest.is_object()) return rest;
  for (const json::Value::json_pointer& pointer : amounts_of_configs()) {
    if (!rest.contains(pointer)) continue;
    json::Value& section = rest[pointer.parent_pointer()];
    if (section.is_object()) section.erase(pointer.back());
  }
  return rest;
}

namespace {

/// Takes the amounts out of a configuration.
std::vector<double> taken_amounts(TrainingConfig& config) {
  std::vector<double> amounts;
  std::size_t at = 0;
  for_each_member(config, [&](const char*, auto& member) {
    if (!amounts_of_members()[at++]) return;
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(member)>>)
      amounts.push_back(static_cast<double>(std::exchange(member, {})));
  });
  return amounts;
}

/// The same of all but the micro-batch.
bool holds_no_less(const Experiment& one, const Experiment& other) {
  if (one.shape != other.shape || one.config.recompute > other.config.recompute) return false;
  TrainingConfig more = one.config;
  TrainingConfig less = other.config;
  const std::vector<double> amounts = taken_amounts(more);
  if (!std::ranges::equal(amounts, taken_amounts(less), std::ranges::greater_equal())) return false;
  more.micro_batch = less.micro_batch;
  more.recompute = less.recompute;
  return more == less && config_without_amounts(one) == config_without_amounts(other);
}

/// The keys that decide how much of a sample is kept, beside TrainingConfig's members.
json::Value rest_outside_zero(const Experiment& experiment) {
  json::Value rest = config_without_amounts(experiment);
  if (rest.is_object()) rest.erase("zero_optimization");
  return rest;
}

bool differs_by_size_alone(const Experiment& one, const Experiment& other) {
  return holds_no_less(one, other) && holds_no_less(other, one);
}

}  // namespace

bool surely_needs_no_less(const Experiment& one, const Experiment& other) {
  return one.config.micro_batch >= other.config.micro_batch && holds_no_less(one, other);
}

void MeasuredMemory::note_room(std::size_t member, const Observation& observation) {
  const auto chain = space_->members[member].micro_batch_chain;
  if (!chain) return;
  Room& room = rooms_[*chain];
  const TrainingConfig& config = space_->experiment(member).config;
  if (observation.value) {
    room.ran = std::max(room.ran, config.micro_batch);
    std::int64_t& with_recompute = ran_with_[config.recompute];
    with_recompute = std::max(with_recompute, config.micro_batch);
  }
  if (observation.status == Status::out_of_memory)
    room.ran_out = std::min(room.ran_out, config.micro_batch);
}

bool MeasuredMemory::is_beyond_middle(std::size_t member) const {
  const auto chain = space_->members[member].micro_batch_chain;
  if (!chain) return false;
  const auto found = rooms_.find(*chain);
  const Room room = found == rooms_.end() ? Room{} : found->second;
  const TrainingConfig& config = space_->experiment(member).config;
  const auto of_others = ran_with_.find(config.recompute);
  if (room.ran == 0 && of_others != ran_with_.end() && config.micro_batch > of_others->second)
    return true;
  return room.ran_out != INT64_MAX &&
         config.micro_batch > room.ran + (room.ran_out - room.ran + 1) / 2;
}

void MeasuredMemory::observe(std::size_t member, const Observation& observation) {
  note_room(member, observation);
  if (observation.status == Status::out_of_memory) {
    if (std::ranges::find(ran_out_, member) == ran_out_.end()) ran_out_.push_back(member);
    return;
  }
  if (!observation.value || observation.device_bytes <= 0) return;
  const Size size{space_->micro_batch(member), observation.device_bytes, member};
  auto ladder = std::ranges::find_if(ladders_, [&](const Ladder& one) {
    return differs_by_size_alone(space_->experiment(one.front().member),
                                 space_->experiment(member));
  });
  if (ladder == ladders_.end()) ladder = ladders_.insert(ladders_.end(), Ladder());
  std::erase_if(*ladder, [&](const Size& one) { return one.micro_batch == size.micro_batch; });
  ladder->insert(
      std::ranges::upper_bound(*ladder, size.micro_batch, std::ranges::less(), &Size::micro_batch),
      size);
}

std::string MeasuredMemory::refusal(std::size_t member) const {
  const Experiment& wanted = space_->experiment(member);
  for (const std::size_t other : ran_out_)
    if (other != member && surely_needs_no_less(wanted, space_->experiment(other)))
      return fmt::format("needs no less memory than {}, which ran out of memory",
                         space_->experiment(other).name);
  const auto limit_bytes = static_cast<double>(known_limit_bytes());
  if (limit_bytes <= 0) return "";
  const auto is_too_much = [&](double bytes) {
    return bytes > policy_->surely_above * limit_bytes;
  };
  const auto needs = [&](double bytes, const Size& by) {
    return fmt::format(
        "needs about {}, but the device has {} (judged by the memory that {} and others used)",
        format_bytes(static_cast<std::int64_t>(bytes)),
        format_bytes(static_cast<std::int64_t>(limit_bytes)), space_->experiment(by.member).name);
  };
  for (const Ladder& ladder : ladders_) {
    const double bytes = bytes_above(ladder, wanted.config.micro_batch);
    if (is_too_much(bytes) && holds_no_less(wanted, space_->experiment(ladder.front().member)))
      return needs(bytes, ladder.back());
  }
  return "";
}

/// 0 where that says nothing.
double MeasuredMemory::bytes_above(const Ladder& ladder, std::int64_t micro_batch) const {
  const Size& largest = ladder.back();
  micro_batch = std::min(micro_batch, policy_->far_from * largest.micro_batch);
  const double slope = bytes_a_sample(ladder);
  if (micro_batch <= largest.micro_batch || slope <= 0) return 0;
  return static_cast<double>(largest.bytes) +
         slope * static_cast<double>(micro_batch - largest.micro_batch);
}

double MeasuredMemory::bytes_a_sample(const Ladder& ladder) const {
  if (ladder.size() >= policy_->enough_sizes) {
    const Size& largest = ladder.back();
    // The flatter of both slopes: one odd figure is not to be believed.
    const auto slope_from = [&](const Size& from) {
      return static_cast<double>(largest.bytes - from.bytes) /
             static_cast<double>(largest.micro_batch - from.micro_batch);
    };
    return std::max(0.0, std::min(slope_from(ladder[ladder.size() - 2]),
                                  slope_from(ladder[ladder.size() - 3])));
  }
  // The flattest of others whose samples are kept alike.
  const TrainingConfig& own = space_->experiment(ladder.front().member).config;
  std::optional<double> flattest;
  for (const Ladder& other : ladders_) {
    const TrainingConfig& config = space_->experiment(other.front().member).config;
    if (other.size() < policy_->enough_sizes || config.recompute != own.recompute ||
        config.precision != own.precision || config.sequence_length != own.sequence_length ||
        rest_outside_zero(space_->experiment(other.front().member)) !=
            rest_outside_zero(space_->experiment(ladder.front().member)))
      continue;
    const double slope = bytes_a_sample(other);
    if (!flattest || slope < *flattest) flattest = slope;
  }
  return flattest.value_or(0);
}

std::int64_t MeasuredMemory::known_limit_bytes() const {
  if (space_->device_memory_bytes > 0) return space_->device_memory_bytes;
  double least = 0;
  for (const std::size_t member : ran_out_)
    for (const Ladder& ladder : ladders_) {
      const double bytes = bytes_above(ladder, space_->micro_batch(member));
      const bool is_own =
          bytes > 0 && differs_by_size_alone(space_->experiment(member),
                                             space_->experiment(ladder.front().member));
      if (is_own && (least == 0 || bytes < least)) least = bytes;
    }
  if (least == 0) return 0;
  // A member that ran had room.
  for (const Ladder& ladder : ladders_)
    least = std::max(least, static_cast<double>(ladder.back().bytes));
  return static_cast<std::int64_t>(least);
}

}  // namespace dstune
