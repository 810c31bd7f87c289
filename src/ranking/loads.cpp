#include "dstune/ranking/loads.hpp"

#include <algorithm>
#include <cmath>

#include "load_curve.hpp"

namespace dstune {
namespace {

/// So many runs are looked at; the earlier ones keep the load that they had.
constexpr std::size_t max_runs = 96;
/// A load is another one that differs by so much.
constexpr double other_load = 0.01, other_deviation = 0.02;
/// A load that is known less well is in doubt.
constexpr double doubtful_deviation = 0.04;

bool differ(const Load& one, const Load& other) {
  return std::abs(one.expected - other.expected) > other_load ||
         std::abs(one.deviation - other.deviation) > other_deviation;
}

}  // namespace

void Loads::add(std::size_t member, const RunFacts& run, std::optional<double> predicted) {
  predicted_[member] = predicted;
  const Heard heard{{member, run.run}, run.begin_s, run.end_s, run.log_speed, run.error};
  const auto after = std::ranges::upper_bound(heard_, heard.end_s, {}, &Heard::end_s);
  heard_.insert(after, heard);
}

void Loads::forget(std::size_t member) {
  std::erase_if(heard_, [&](const Heard& one) { return one.run.first == member; });
  std::erase_if(loads_, [&](const auto& one) { return one.first.first == member; });
}

bool Loads::update() {
  is_in_doubt_ = false;
  if (heard_.empty()) return false;
  const std::size_t first = heard_.size() - std::min(heard_.size(), max_runs);
  std::vector<LoadedRun> runs;
  std::vector<std::optional<double>> predicted;
  std::map<std::size_t, std::size_t> places;
  for (std::size_t each = first; each < heard_.size(); ++each) {
    const Heard& one = heard_[each];
    const auto [place, is_new] = places.try_emplace(one.run.first, predicted.size());
    if (is_new) predicted.push_back(predicted_.at(one.run.first));
    runs.push_back({place->second, one.log_speed, one.error});
  }
  const LoadCurve curve = estimate_loads(runs, predicted);
  bool have_changed = false;
  for (std::size_t each = first; each < heard_.size(); ++each) {
    const Load& load = curve.loads[each - first];
    const bool is_last = each + 1 == heard_.size();
    const auto [known, is_new] = loads_.try_emplace(heard_[each].run, load);
    have_changed |= !is_last && !is_new && differ(known->second, load);
    known->second = load;
  }
  is_in_doubt_ = curve.loads.back().deviation > doubtful_deviation || curve.is_surprise.back();
  return have_changed;
}

Load Loads::of(std::size_t member, std::size_t run) const {
  const auto found = loads_.find({member, run});
  return found == loads_.end() ? Load{} : found->second;
}

Load Loads::now() const {
  return heard_.empty() ? Load{} : of(heard_.back().run.first, heard_.back().run.second);
}

}  // namespace dstune
