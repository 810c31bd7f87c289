#pragma once
/// The members that a race chooses among, and which of them wait. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/policy.hpp"
#include "dstune/search/planner.hpp"

namespace dstune {

struct Entrant {
  std::size_t member = 0;
  double prior = 0;      ///< logarithm of the metric as predicted, larger is better
  std::string reason{};  ///< why it is excluded; empty: it is not
};

/// Entrants are places from 0 on. The first one is predicted to be the best. Each of them waits,
/// runs, has ended or is excluded.
class RaceEntrants {
 public:
  /// Takes as many of the space's planned members as the policy allows, those that promise most.
  /// Whatever is predicted to be `hopeless_factor` times slower than the best is hopeless. The
  /// space outlives it.
  RaceEntrants(const PlannedSpace& space, const TuningOptions& options, double hopeless_factor);

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] const Entrant& operator[](std::size_t place) const { return all_[place]; }
  /// Nothing: it is none of them.
  [[nodiscard]] std::optional<std::size_t> place_of(std::size_t member) const;
  [[nodiscard]] std::vector<double> priors() const;
  /// Planned members that are not among them.
  [[nodiscard]] const std::vector<std::size_t>& never_considered() const {
    return never_considered_;
  }
  /// Predictions tell them apart.
  [[nodiscard]] bool are_told_apart() const {
    return !all_.empty() && all_.front().prior > all_.back().prior;
  }
  [[nodiscard]] bool is_hopeless(std::size_t place) const {
    return all_[place].prior < all_.front().prior - hopeless_below_;
  }

  [[nodiscard]] const PlannedExperiment& planned(std::size_t place) const {
    return space_.members[all_[place].member].planned;
  }
  /// As planned; 0: nobody knows.
  [[nodiscard]] std::int64_t memory_bytes(std::size_t place) const {
    return planned(place).predicted.peak_memory_bytes;
  }
  [[nodiscard]] std::int64_t micro_batch(std::size_t place) const {
    return space_.micro_batch(all_[place].member);
  }

  [[nodiscard]] const std::set<std::size_t>& waiting() const { return waiting_; }
  [[nodiscard]] const std::set<std::size_t>& ended() const { return ended_; }
  void begin(std::size_t place) { waiting_.erase(place); }
  void end(std::size_t place);
  void exclude(std::size_t place, std::string reason);
  /// It waits again.
  void admit(std::size_t place);

 private:
  const PlannedSpace& space_;
  double hopeless_below_;  ///< a logarithm
  std::vector<Entrant> all_;
  std::vector<std::size_t> never_considered_;
  std::unordered_map<std::size_t, std::size_t> place_of_member_;
  std::set<std::size_t> waiting_, ended_;
};

}  // namespace dstune
