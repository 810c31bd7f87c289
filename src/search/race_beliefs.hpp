#pragma once
/// The beliefs of a race about its entrants: how good each may be, by predictions and
/// measurements, and how far that may be trusted. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "dstune/core/policy.hpp"
#include "surrogate.hpp"

namespace dstune {

/// Entrants are places from 0 on. Scores are logarithms; larger is better.
class RaceBeliefs {
 public:
  /// `priors`: the score of each entrant as predicted, the best one first; up to a constant.
  /// `unknowns`: as Surrogate's. `run_error`: from run to run a score differs by so much.
  RaceBeliefs(const Points& points, std::vector<double> priors,
              std::span<const std::vector<double>> unknowns, double run_error, std::uint64_t seed,
              const Policy& policy);

  /// An entrant begins to run. Its belief will be compared with its measurement.
  void begin(std::size_t place);
  /// An entrant begins of which the result is known at once, as from a journal.
  void begin_known(std::size_t place);
  /// It has ended, with or without a score.
  void end(std::size_t place);
  /// `deviation`: what its own steps say of the score. `is_ok`: it was timed to its end.
  void note(std::size_t place, double score, double deviation, bool is_ok);
  /// Its score does not count any more. Another one may follow.
  void forget(std::size_t place);
  /// After scores were replaced: how they hang together is learnt anew, and the best is looked for.
  void learn_anew();
  /// Notes the error of an experiment elsewhere, as TrackRecord::note.
  void note_error(double error) { judge({.value = error}); }

  [[nodiscard]] const std::set<std::size_t>& running() const { return running_; }
  [[nodiscard]] const std::vector<Sample>& samples() const { return samples_; }
  /// The best of those that were timed to their end.
  [[nodiscard]] const std::optional<std::size_t>& best() const { return best_; }
  [[nodiscard]] double best_score() const { return measured_.at(*best_).score; }

  // These need at least one sample:
  /// The expected score of an entrant.
  [[nodiscard]] double expected_score(std::size_t place) const;
  /// The posterior of its score less the best one's. It needs a best one.
  [[nodiscard]] Posterior advantage(std::size_t place) const;
  /// The same less the gain that is worth finding.
  [[nodiscard]] Posterior relevant_advantage(std::size_t place) const;
  /// The chance that any of these is better by more than the gain that is worth finding. It needs a
  /// best one.
  [[nodiscard]] double chance_of_better(const std::set<std::size_t>& waiting) const;

  /// Tells whether what begins now is compared with what was believed of it.
  [[nodiscard]] bool are_tested() const;
  /// Tells whether beliefs were as far off as they said.
  [[nodiscard]] bool hold() const {
    condition();
    return record_.holds();
  }
  /// The chance that something is better that beliefs know nothing of.
  [[nodiscard]] double chance_unforeseen() const {
    condition();
    return record_.chance_unforeseen();
  }

 private:
  struct Measured {
    double score = 0;
    bool is_ok = false;
  };

  /// A belief and what was measured then, of a sample or of an experiment elsewhere.
  struct Judged {
    std::optional<std::size_t> place{};
    std::size_t num_known = 0;  ///< samples that it was founded on
    double mean = 0, deviation = 1;
    double value = 0;
    [[nodiscard]] double error() const { return (value - mean) / deviation; }
  };

  void judge(const Judged& judged);
  void judge_anew() const;
  void note_belief(std::size_t place);
  void note_if_best(std::size_t place);
  void condition() const;

  const Policy::Race& policy_;
  double least_gain_;  ///< what is worth finding; a logarithm
  std::vector<double> priors_;
  double run_error_;
  std::uint64_t seed_;
  bool is_predicted_;      ///< predictions tell entrants apart
  bool are_groups_alike_;  ///< all entrants run on groups of one shape
  std::set<std::size_t> running_;
  std::vector<Sample> samples_;
  std::unordered_map<std::size_t, Measured> measured_;
  std::optional<std::size_t> best_;
  /// It makes beliefs narrower only where these are alike and predicted: what it has seen says
  /// nothing of a value on groups on which it did not run.
  TrackRecord no_record_;
  mutable TrackRecord record_;
  mutable std::vector<Judged> judged_;
  mutable bool is_judged_anew_ = true;                   ///< no value of a sample has changed since
  std::unordered_map<std::size_t, std::size_t> order_;   ///< of samples, by their first values
  std::unordered_map<std::size_t, Posterior> believed_;  ///< of those that run, when they began
  // Made where they are asked for.
  mutable double trusted_scale_ = 1;
  mutable Surrogate surrogate_;
  mutable std::size_t num_trained_ = 0;
  mutable bool is_conditioned_ = false;
  mutable std::optional<double> chance_;
};

}  // namespace dstune
