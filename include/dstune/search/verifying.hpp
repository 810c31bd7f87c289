#pragma once
/// The search of DeepSpeed's engine with forecasts of the built-in step: they say where the engine
/// is to look (docs/trust.md). Deterministic. Local.

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

/// The forecast of a member by the built-in step.
struct ForecastMember {
  std::optional<double> step_s{};  ///< as it is predicted
  double batch = 0;                ///< samples of a step
  Precision precision = Precision::fp32;
  Overheads overheads{};  ///< of the step in the user's training
};

/// A member that the engine ran, and seconds of a step there.
using EngineRun = std::pair<std::size_t, double>;

/// The belief about a member in the engine.
struct MemberBelief {
  Prediction prediction{};
  /// How far it may be off; relative.
  double deviation = default_policy().verifying.unknown_error;
  std::vector<double> unknowns{};  ///< as BelievedTime's; empty where nothing is predicted
};
/// Returns the belief about each member in the engine by the built-in step's times. It is in the
/// target's time, whose costs and scale are fitted to the engine's runs (believed_times()), about
/// the constants if there are some. Predictions have only their throughput set; it is nothing if
/// nothing is known.
[[nodiscard]] std::vector<MemberBelief> believed_in_engine(
    const std::vector<ForecastMember>& members, const std::vector<EngineRun>& runs,
    const std::optional<TargetConstants>& constants, const Policy& policy = default_policy());

/// The beliefs about every member of the space after these members have run.
using BeliefsOf = std::function<std::vector<MemberBelief>(const std::vector<std::size_t>& ran)>;

/// The search begins with the baseline and a few members in which all that the space varies has
/// been seen; then race goes on with what is believed by then. Beliefs are asked for at the
/// beginning and after each of the first runs. Everything that they refer to outlives the tuner.
std::unique_ptr<Tuner> make_verifying_tuner(const PlannedSpace& space, const TuningOptions& options,
                                            BeliefsOf beliefs);

}  // namespace dstune
