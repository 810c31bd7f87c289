#pragma once
/// From the time of a step here to that of the same step in the user's own training. It is the
/// target's time, as there is the target's memory. docs/trust.md has the model. Local.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dstune/base/archive.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

/// The work of the user's training that the built-in step does not have: PyTorch's and DeepSpeed's
/// interpreter, and a slower network. The plan's builder counts them.
enum class Overhead : std::uint8_t {
  optimizer_step,       ///< DeepSpeed's engine, once a step
  module_call,          ///< a module's forward, with its backward; what recompute calls again, too
  gradient_hook,        ///< a parameter's gradient is handed to a bucket: stages 1 to 3
  gathering_hook,       ///< a module with parameters fetches or releases them: stage 3
  sub_group,            ///< of the optimizer's states, updated
  offload_copy,         ///< between the device's memory and the host's
  stage_2_byte,         ///< of gradients, that stage 2 frees in a step, and makes anew
  recompute,            ///< a share of the step's scaled time: 1 where blocks are computed again
  all_reduce_call,      ///< collective calls by kind
  reduce_call,          ///<
  reduce_scatter_call,  ///<
  all_gather_call,      ///< that compute waits for at once
  all_gather_ahead,     ///< … and those that others follow before anybody waits
  all_to_all_call,      ///<
  small_call_byte,      ///< that a rank sends in a call, of each call at most 512 KiB
  communicated_byte,    ///< that a rank sends with gloo, by ring algorithms
  link_byte,            ///< that gloo puts on a node's link beyond those of the built-in step
};
inline constexpr int num_overheads = static_cast<int>(Overhead::link_byte) + 1;
[[nodiscard]] const EnumTexts& texts_of(Overhead);
/// Tells whether the network makes it cost something, and not the interpreter on the host.
[[nodiscard]] constexpr bool is_of_network(Overhead overhead) {
  return overhead >= Overhead::all_reduce_call;
}

/// Tells whether it is work of the host's interpreter. Recompute's is a share of the step.
[[nodiscard]] constexpr bool is_of_host(Overhead overhead) {
  return !is_of_network(overhead) && overhead != Overhead::recompute;
}

/// Tells whether a device that works behind the host has something to do meanwhile. An update has
/// not: it begins with the gradients' norm, which DeepSpeed's host reads from the device.
[[nodiscard]] constexpr bool is_beside_device(Overhead overhead) {
  return is_of_host(overhead) && overhead != Overhead::optimizer_step &&
         overhead != Overhead::sub_group;
}

/// One number for each, of an optimizer step.
using Overheads = std::array<double, num_overheads>;
[[nodiscard]] inline double& of(Overheads& all, Overhead one) {
  return all[static_cast<std::size_t>(one)];
}

inline constexpr std::size_t num_precisions = static_cast<std::size_t>(Precision::fp16) + 1;

/// Calculates a step's time in the user's training from its time here and its overheads:
///   `device + Σ cost · count`,
/// or, if the device works behind the host,
///   `max(device, Σ cost · count of what is beside it) + Σ cost · count of the others`.
/// Here device is `scale · measured · (1 + cost · count of recompute)`, and no sum has recompute.
struct TimeCalibration {
  std::array<double, num_precisions> scale{1, 1, 1};  ///< by Precision
  Overheads costs_s{};
  bool is_device_behind_host = false;

  [[nodiscard]] double scale_of(Precision precision) const {
    return scale[static_cast<std::size_t>(precision)];
  }
  /// Returns what of the time there grows with the time here, as a factor of it.
  [[nodiscard]] double device_scale(Precision precision, const Overheads& counts) const {
    constexpr auto recompute = static_cast<std::size_t>(Overhead::recompute);
    return scale_of(precision) * (1 + costs_s[recompute] * counts[recompute]);
  }
  [[nodiscard]] double target_s(double measured_s, Precision precision,
                                const Overheads& counts) const;
  /// Returns what each adds to `scale · measured`; all of these together give target_s. The host's
  /// work while the device works adds nothing. Its work beyond that is shared out by the costs.
  [[nodiscard]] Overheads added_s(double measured_s, Precision precision,
                                  const Overheads& counts) const;
  /// Returns the longest time that a step may take here to be as fast as `target_s` there. 0 or
  /// less: no step here is fast enough.
  [[nodiscard]] double measured_s(double target_s, Precision precision,
                                  const Overheads& counts) const;
  bool operator==(const TimeCalibration&) const = default;
};

/// A calibration that was fitted to recorded runs of DeepSpeed and comes with the program: what is
/// believed before the user's own runs say more.
struct TargetConstants {
  TimeCalibration time;
  double error = 0;  ///< relative, of times after one common scale: the mean over what was judged;
                     ///< 0: nothing was
  std::string source;    ///< what was recorded
  std::string machine;   ///< and where
  int num_engines = 0;   ///< tiny ones that this machine's costs were measured by; 0: none were
  double fit_error = 0;  ///< … the mean error of their times, relative
  /// How far the scale, relative, and the costs may be off on the machines that they were fitted
  /// on: standard deviations. 0: nobody knows.
  double scale_deviation = 0;
  Overheads deviations_s{};
  /// Correlations of these, the scale first, then by Overhead: what is below the diagonal, row by
  /// row. Another number of them: they do not depend on each other.
  std::vector<double> correlations{};
  /// A measurement of this machine says by how much to multiply all costs of the host, and how far
  /// that may be off, relative. 0: only tiny engines measured.
  double host_factor = 0, host_deviation = 0;
  bool operator==(const TargetConstants&) const = default;
};
/// Names the source of the constants: "measured here by 9 tiny engines, beginning with …", or the
/// record, and host_text() after it.
[[nodiscard]] std::string source_text(const TargetConstants& constants);
/// "; host costs times 0.80, by a measurement of this machine"; empty where there is none.
[[nodiscard]] std::string host_text(const TargetConstants& constants);
/// The list of members (base/archive.hpp).
template <class Archive>
void members(Archive& archive, json::Of<Archive, TargetConstants>& constants);

/// The constants of trainings on the host's processors (with gloo) or on GPUs (with NCCL).
[[nodiscard]] const TargetConstants& target_constants(bool is_on_gpus);

/// A machine on which two things were measured: work like that of the interpreter, and the costs of
/// the host. The latter are a factor on those that come with the program for processors.
struct HostReference {
  double interpreter_s = 0;  ///< as DeviceProfile's
  double host_factor = 1;
  /// How far the factor of another machine may be off that the two times tell: the standard
  /// deviation of its logarithm.
  double deviation = 0;
  std::string machine;
};
[[nodiscard]] const HostReference& host_reference();

}  // namespace dstune
