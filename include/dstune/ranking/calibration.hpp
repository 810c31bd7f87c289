#pragma once
/// Fits the target's time to runs of the user's own training, beside what was believed before them
/// (docs/trust.md). Local.

#include <optional>
#include <vector>

#include "dstune/core/policy.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

/// One configuration that ran here and in the user's training.
struct CalibrationPoint {
  double measured_s = 0;  ///< an optimizer step here
  double target_s = 0;    ///< there
  Precision precision = Precision::fp32;
  Overheads overheads{};  ///< of the step
};

/// The belief about a calibration before the user's own runs: the mean of a normal prior, and how
/// far each cost may be from it.
struct CalibrationPrior {
  TimeCalibration mean{};
  Overheads deviations_s{};
  /// On another one all of its times, and how far they may be off, have a common factor.
  bool is_of_one_machine = false;
};
/// The prior if nothing is known of the target: costs of 0, which may be as large as is usual for
/// such a thing.
[[nodiscard]] CalibrationPrior unknown_target(
    const Policy::Calibrating& policy = default_policy().calibrating);
/// About the constants that come with the program.
[[nodiscard]] CalibrationPrior prior_of(
    const TargetConstants& constants,
    const Policy::Calibrating& policy = default_policy().calibrating);

/// Least squares of the relative errors over a common scale and the costs, none below 0. The costs
/// are drawn to the prior's, each as strongly as the prior is sure of it beside the errors of
/// measurements. This is ridge regression (Hoerl and Kennard, Technometrics 12, 1970), with bounds
/// (Lawson and Hanson, Solving Least Squares Problems, 1974). So what the points do not tell apart
/// changes the common scale. One point moves that alone, of kernels and costs alike. At least one
/// point; times are positive and finite. If the device works behind the host, the prior says which
/// of the two a point's step waits for.
TimeCalibration fit_time(const std::vector<CalibrationPoint>& points, const CalibrationPrior& prior,
                         const Policy::Calibrating& policy = default_policy().calibrating);

/// The constants of the machine on which the points ran; these are of tiny engines, whose kernels
/// say little of larger ones. So the scales stay near the constants'. All costs of the host may be
/// dearer by a common factor, and all of the network by another. Beside that each is drawn to the
/// constants as strongly as in prior_of(). Constants that the points do not tell change by that
/// factor alone. At least one point; as fit_time()'s.
TargetConstants fit_machine(const std::vector<CalibrationPoint>& points,
                            const TargetConstants& constants,
                            const Policy::Calibrating& policy = default_policy().calibrating);

/// The constants with all costs of the host dearer or cheaper by one factor, where work like the
/// interpreter's took so long here beside the machine of the reference. The factor lies between
/// what this says and 1, by how much each is worth. Constants stay as they are where tiny engines
/// measured them, where a device works behind the host, since no such machine has a reference, and
/// where nothing was measured here.
TargetConstants with_host_factor(const TargetConstants& constants, double interpreter_s,
                                 const HostReference& reference,
                                 const Policy::Calibrating& policy = default_policy().calibrating);

/// The chance that the order of members is another one in the user's training for nothing but the
/// errors of the constants.
struct ConstantsDoubt {
  double chance = 0;          ///< that one of the others is better than the first
  std::size_t likeliest = 0;  ///< its place; 0: there is no other
  double chance_of_it = 0;
};
/// By draws of the constants, always the same ones. `members`: the first one is compared with the
/// others; target_s is by the constants. `lead`: how much better the first one is by them than each
/// member, a logarithm; another one counts where it is better by more than `gain`, one more. The
/// errors are the constants' own, and, where tiny engines did not measure them here, those of
/// another machine.
[[nodiscard]] ConstantsDoubt doubt_of_constants(
    const std::vector<CalibrationPoint>& members, const std::vector<double>& lead, double gain,
    const TargetConstants& constants,
    const Policy::Calibrating& policy = default_policy().calibrating);

/// The belief about a member's step in the user's training.
struct BelievedTime {
  double target_s = 0;   ///< an optimizer step
  double deviation = 0;  ///< how far it may be off after the runs that there are; relative
  /// How far it may be off before any run: by how much it is longer, relative, where one of the
  /// unknowns is higher by a deviation. Unknowns do not depend on each other, and members share
  /// them.
  std::vector<double> unknowns{};
};

/// Bayesian linear regression (Rasmussen and Williams 2006, section 2.1) of the relative times of
/// `runs` on the scale and the costs, none below 0. The prior is about the constants: the scale,
/// all costs of the host, all of the network, and each cost may be off, each by a share of its own.
/// Without constants nothing but the order of costs is known. `members`: their target_s means
/// nothing. Times are positive and finite.
std::vector<BelievedTime> believed_times(
    const std::vector<CalibrationPoint>& members, const std::vector<CalibrationPoint>& runs,
    const std::optional<TargetConstants>& constants,
    const Policy::Calibrating& policy = default_policy().calibrating);

}  // namespace dstune
