#include "dstune/ranking/loads.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "load_curve.hpp"

namespace dstune {
namespace {

constexpr std::size_t max_runs = 96;
/// So many more are looked at together where a job begins with those of an earlier one.
constexpr std::size_t runs_at_once = 24;
/// A look takes a millisecond or two. So it comes after runs that took much longer.
constexpr double least_s = 0.1;
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
  coming_.push_back(
      {{member, run.run}, run.begin_s, run.end_s, run.is_alone, run.log_speed, run.error});
}

/// Nothing else of the job runs beside those that take turns, and they go on at the same time.
bool Loads::take_turns(const Heard& one, const Heard& other) {
  const double both_s = std::min(one.end_s, other.end_s) - std::max(one.begin_s, other.begin_s);
  return one.is_alone && other.is_alone && one.run.first != other.run.first &&
         2 * both_s > std::max(one.end_s - one.begin_s, other.end_s - other.begin_s);
}

void Loads::forget(std::size_t member) {
  if (predicted_.erase(member) == 0) return;
  const auto is_of_member = [&](const Heard& one) { return one.run.first == member; };
  std::erase_if(coming_, is_of_member);
  std::erase_if(latest_, is_of_member);
  loads_.erase(loads_.lower_bound({member, 0}), loads_.lower_bound({member + 1, 0}));
}

bool Loads::update() {
  double passed_s = 0;
  for (const Heard& one : coming_) passed_s += one.end_s - one.begin_s;
  if (passed_s < least_s) return false;
  std::ranges::stable_sort(coming_, {}, &Heard::end_s);
  bool have_changed = false;
  const std::vector<Heard> coming = std::exchange(coming_, {});
  for (std::size_t done = 0; done < coming.size();) {
    for (const std::size_t end = std::min(coming.size(), done + runs_at_once); done < end; ++done) {
      const auto after = std::ranges::upper_bound(latest_, coming[done].end_s, {}, &Heard::end_s);
      latest_.insert(after, coming[done]);
    }
    if (latest_.size() > max_runs)
      latest_.erase(latest_.begin(), latest_.end() - static_cast<std::ptrdiff_t>(max_runs));
    have_changed |= look();
  }
  return have_changed;
}

bool Loads::look() {
  std::vector<LoadedRun> runs;
  std::vector<std::optional<double>> predicted;
  std::map<std::size_t, std::size_t> places;
  std::size_t period = 0;
  for (std::size_t each = 0; each < latest_.size(); ++each) {
    const Heard& one = latest_[each];
    if (each > 0 && !take_turns(latest_[each - 1], one)) ++period;
    const auto [place, is_new] = places.try_emplace(one.run.first, predicted.size());
    if (is_new) predicted.push_back(predicted_.at(one.run.first));
    runs.push_back({place->second, one.log_speed, one.error, period});
  }
  const LoadCurve curve = estimate_loads(runs, predicted);
  bool have_changed = false;
  for (std::size_t each = 0; each < latest_.size(); ++each) {
    const Run& run = latest_[each].run;
    const Load& load = curve.loads[runs[each].period];
    have_changed |= each + 1 < latest_.size() && differ(of(run.first, run.second), load);
    if (load.expected == 0 && load.deviation == 0)
      loads_.erase(run);
    else
      loads_[run] = load;
  }
  is_in_doubt_ = curve.loads.back().deviation > doubtful_deviation || curve.is_surprise.back();
  return have_changed;
}

Load Loads::of(std::size_t member, std::size_t run) const {
  const auto found = loads_.find({member, run});
  return found == loads_.end() ? Load{} : found->second;
}

Load Loads::now() const {
  return latest_.empty() ? Load{} : of(latest_.back().run.first, latest_.back().run.second);
}

}  // namespace dstune
