#include "race_entrants.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>

#include "tuners.hpp"

namespace dstune {

namespace {

/// The logarithm of samples/s, of these per rank, or of steps/s. Nothing where there is no
/// prediction.
std::optional<double> predicted_score(const PlannedSpace& space, std::size_t member,
                                      Metric metric) {
  const double throughput = space.predicted_throughput(member).value_or(0);
  if (throughput <= 0) return std::nullopt;
  if (metric == Metric::throughput) return std::log(throughput);
  const auto divisor =
      metric == Metric::latency
          ? static_cast<double>(batch_of(space.members.copy_of(member).planned.experiment))
          : space.shape(member).size();
  return std::log(throughput / divisor);
}

}  // namespace

RaceEntrants::RaceEntrants(const PlannedSpace& space, const TuningOptions& options,
                           double hopeless_factor)
    : space_(space), hopeless_below_(std::log(hopeless_factor)) {
  double sum = 0;
  std::vector<std::size_t> unpredicted;
  for (const std::size_t member : planned_members(space_)) {
    const auto predicted = predicted_score(space_, member, options.metric);
    sum += predicted.value_or(0);
    if (!predicted) unpredicted.push_back(all_.size());
    all_.push_back({member, predicted.value_or(0)});
  }
  const std::size_t num_predicted = all_.size() - unpredicted.size();
  // Nothing is known of them: as good as the others are on average.
  for (const std::size_t place : unpredicted)
    all_[place].prior = num_predicted > 0 ? sum / static_cast<double>(num_predicted) : 0;
  // The order breaks ties, so it must not be the document's.
  std::mt19937_64 random(static_cast<std::uint64_t>(options.seed));
  for (std::size_t left = all_.size(); left > 1; --left)
    std::swap(all_[left - 1], all_[random() % left]);
  std::ranges::stable_sort(all_, std::ranges::greater(), &Entrant::prior);
  const std::size_t most = options.policy->race.max_candidates;
  for (std::size_t place = most; place < all_.size(); ++place)
    never_considered_.push_back(all_[place].member);
  all_.resize(std::min(all_.size(), most));
  all_.shrink_to_fit();
  for (std::size_t place = 0; place < all_.size(); ++place) {
    place_of_member_[all_[place].member] = place;
    waiting_.insert(place);
  }
}

std::optional<std::size_t> RaceEntrants::place_of(std::size_t member) const {
  const auto found = place_of_member_.find(member);
  return found == place_of_member_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<double> RaceEntrants::priors() const {
  std::vector<double> priors;
  for (const Entrant& entrant : all_) priors.push_back(entrant.prior);
  return priors;
}

void RaceEntrants::end(std::size_t place) {
  waiting_.erase(place);
  ended_.insert(place);
  all_[place].reason.clear();
}

void RaceEntrants::exclude(std::size_t place, std::string reason) {
  waiting_.erase(place);
  all_[place].reason = std::move(reason);
}

void RaceEntrants::admit(std::size_t place) {
  all_[place].reason.clear();
  waiting_.insert(place);
}

}  // namespace dstune
