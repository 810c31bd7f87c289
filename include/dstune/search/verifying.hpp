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
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune {

/// What our own step says of a member.
struct ScreenedMember {
  std::optional<double> step_s{};  ///< as it was measured, or else is predicted
  double batch = 0;                ///< samples of a step
  Precision precision = Precision::fp32;
  Overheads overheads{};  ///< of the step in the user's training
};

/// A member that the engine ran: its place among the screened ones, and seconds of a step there.
using EngineRun = std::pair<std::size_t, double>;

/// Samples/s of each member in the engine, as they are believed: our own step's times in the
/// target's time, whose costs and scale are fitted to the engine's runs (fit_time()), about the
/// constants where there are some. Nothing where nothing is known of a member.
[[nodiscard]] std::vector<std::optional<double>> believed_throughputs(
    const std::vector<ScreenedMember>& members, const std::vector<EngineRun>& runs,
    const std::optional<TargetConstants>& constants);

/// What is believed of every member of the space in the second instrument, as predictions.
using Beliefs = std::function<std::vector<Prediction>()>;
/// The search of a second instrument, which costs more than the first and decides. It begins with
/// the baseline and a few members in which all that the space varies has been seen. When these have
/// ended, `beliefs` is asked again, and race goes on with what it says. Of the space's members only
/// the predictions are looked at. What `beliefs` refers to outlives the tuner.
std::unique_ptr<Tuner> make_verifying_tuner(const PlannedSpace& space, const TuningOptions& options,
                                            Beliefs beliefs);

}  // namespace dstune
