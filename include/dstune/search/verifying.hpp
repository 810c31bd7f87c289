#pragma once
/// Two instruments in one search: what the cheap one has found says where the one that decides is
/// to look (docs/trust.md). Deterministic. Local.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dstune/core/target_time.hpp"
#include "dstune/ranking/calibration.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune {

/// What our own step says of a member.
struct ScreenedMember {
  std::optional<double> step_s{};  ///< as it is predicted, and was measured where it ran
  double batch = 0;                ///< samples of a step
  Precision precision = Precision::fp32;
  Overheads overheads{};  ///< of the step in the user's training
};

/// How far our own step's figures of a member are off: standard deviations, relative.
struct OwnErrors {
  double of_run = 0;         ///< of a run from the member's mean
  double of_prediction = 0;  ///< of what was predicted, likewise
};
/// `seen_error`: of predictions against single runs, which have the error of runs in it.
[[nodiscard]] OwnErrors own_errors(double seen_error, double run_error,
                                   const Policy::Verifying& policy = default_policy().verifying);
/// Seconds of a step by a run and by what was predicted of it: the mean of their logarithms, each
/// with the inverse of its variance as weight.
[[nodiscard]] double step_by_both(double measured_s, double predicted_s, const OwnErrors& errors,
                                  const Policy::Verifying& policy = default_policy().verifying);

/// A member that the engine ran: its place among the screened ones, and seconds of a step there.
using EngineRun = std::pair<std::size_t, double>;

/// What is believed of a member in the second instrument.
struct MemberBelief {
  Prediction prediction{};
  /// How far it may be off; relative.
  double deviation = default_policy().verifying.unknown_error;
  std::vector<double> unknowns{};  ///< as BelievedTime's; empty where nothing is predicted
};
/// What our own step's times say of each member in the engine: in the target's time, whose costs
/// and scale are fitted to the engine's runs (believed_times()), about the constants where there
/// are some. Of the predictions throughput alone is set; it is nothing where nothing is known.
[[nodiscard]] std::vector<MemberBelief> believed_in_engine(
    const std::vector<ScreenedMember>& members, const std::vector<EngineRun>& runs,
    const std::optional<TargetConstants>& constants, const Policy& policy = default_policy());

/// What is believed of every member of the space.
struct Beliefs {
  /// With what these members have shown.
  std::function<std::vector<MemberBelief>(const std::vector<std::size_t>& ran)> of_members;
  /// How far off they were elsewhere (standard deviation, relative).
  double error = default_policy().verifying.unknown_error;
};
/// How far off beliefs are that begin with these constants.
[[nodiscard]] Beliefs beliefs_about(const std::optional<TargetConstants>& constants,
                                    decltype(Beliefs::of_members) of_members);

/// The search of a second instrument, which costs more than the first and decides. It begins with
/// the baseline and a few members in which all that the space varies has been seen; then race goes
/// on with what is believed by then.
class VerifyingTuner : public Tuner {
 public:
  /// The search is done, for now, when the first ones have ended: the first instrument may then
  /// look closer. Before anything has run.
  virtual void pause_after_first() = 0;
  /// Ends that.
  virtual void go_on() = 0;
  /// How far what was believed of the first ones was from what was measured: standard deviation,
  /// relative, with what is known of it before.
  [[nodiscard]] virtual double error() const = 0;
};
/// Of the space's members only the predictions are looked at. Beliefs are asked for at the
/// beginning, after each of the first runs, and by go_on(). What they refer to outlives the tuner.
std::unique_ptr<VerifyingTuner> make_verifying_tuner(const PlannedSpace& space,
                                                     const TuningOptions& options, Beliefs beliefs);

/// What a further run of each instrument costs and tells.
struct InstrumentPrices {
  double own_s = 0, engine_s = 0;  ///< of a run, with all that belongs to it
  double own_error = 0;            ///< of what is predicted of our own step; relative
  double engine_error = 0;         ///< of what our own step's times say of the engine's; relative
  double own_run_error = 0;        ///< of a run of our own step from the member's mean; relative
  double engine_run_error = 0;     ///< of a run of the engine, likewise
};
/// Whether a run of our own step lowers the doubt about a member in the engine by more for its
/// price. That doubt is own_error² + engine_error². A run of our own step speaks of the first part,
/// and a run of the engine of all. What a doubt d² loses by a run with an error e is
/// d⁴ / (d² + e²). Prices are about the same for all members, so that the cheap instrument has its
/// turn before the other or not at all.
[[nodiscard]] bool is_own_step_worth_it(const InstrumentPrices& prices);

/// The search `inner` of our own step, which ends where the engine tells more for its price. The
/// first member runs in any case. `prices` is asked before each further one; nothing: unknown.
std::unique_ptr<Tuner> make_screening_tuner(
    std::unique_ptr<Tuner> inner, std::function<std::optional<InstrumentPrices>()> prices);

}  // namespace dstune
