#pragma once
/// The load of the machine while each run went on, as all runs so far tell it. Local.

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dstune/ranking/verdict.hpp"

namespace dstune {

/// Hears of all runs of a job, first ones and later ones, those that were raced out among them.
/// A member is named by its number in the space, a run by its number among the member's. The latest
/// runs are looked at; an earlier one keeps the load that it had.
class Loads {
 public:
  /// In any order.
  void add(std::size_t member, const RunFacts& run, std::optional<double> predicted);
  /// The member's runs are none any more.
  void forget(std::size_t member);
  /// Finds the loads anew. Returns whether that of an earlier run than the last one is another one
  /// now. Runs that are too short for a load to come or go meanwhile wait for those that follow.
  bool update();

  /// None where nothing is known of the run.
  [[nodiscard]] Load of(std::size_t member, std::size_t run) const;
  /// That of the last run that was looked at.
  [[nodiscard]] Load now() const;
  /// Tells whether the last run says too little of the load, so that a control is needed.
  [[nodiscard]] bool is_in_doubt() const { return is_in_doubt_; }

 private:
  using Run = std::pair<std::size_t, std::size_t>;  ///< member, number
  struct Heard {
    Run run;
    double begin_s = 0, end_s = 0;
    bool is_alone = false;
    double log_speed = 0, error = 0;
  };
  [[nodiscard]] static bool take_turns(const Heard& one, const Heard& other);
  bool look();

  std::vector<Heard> coming_;  ///< were not looked at yet
  std::vector<Heard> latest_;  ///< by their ends
  std::map<std::size_t, std::optional<double>> predicted_;
  std::map<Run, Load> loads_;  ///< of the runs that had any
  bool is_in_doubt_ = false;
};

}  // namespace dstune
