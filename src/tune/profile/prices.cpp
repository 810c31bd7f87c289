// The constants of the target's time take in what the machine was measured to be.
#include <optional>

#include <fmt/format.h>

#include "dstune/base/json.hpp"
#include "dstune/base/log.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/link_traffic.hpp"
#include "dstune/ranking/calibration.hpp"
#include "profile/prediction.hpp"

namespace dstune {

double price_link(TimeCalibration& time, const DeviceProfile& profile, JobPredictor& predictor) {
  // On GPUs bytes are NCCL's, as in the step here.
  if (time.is_device_behind_host) return 0;
  const double byte_s = link_byte_s(profile);
  if (byte_s <= 0) return 0;
  of(time.costs_s, Overhead::link_byte) = byte_s;
  predictor.count_link(time);
  return byte_s;
}

namespace {

/// Nothing is measured again where all is known, and values are as they were.
std::optional<DeviceProfile> known_profile(const OpenJob& ready, const JobPredictor& predictor) {
  if (predictor.profile() || ready.history.profile_key.empty()) return predictor.profile();
  const json::Document document = json::Document::of(ready.history.profile, "journal");
  return device_profile_from_json(document.node());
}

/// Spaces that were recorded on the reference's own kind of machine are ranked no better with the
/// factor, and no other kind has a reference (docs/figures/fidelity.md). So it is measured, and not
/// used.
constexpr bool uses_host_factor = false;

}  // namespace

TargetConstants priced_host(const TargetConstants& constants, const DeviceProfile& profile) {
  if (!uses_host_factor) return constants;
  return with_host_factor(constants, profile.interpreter_s, host_reference());
}

void price_host(OpenJob& ready, const JobPredictor& predictor) {
  if (!ready.target) return;
  const std::optional<DeviceProfile> profile = known_profile(ready, predictor);
  if (!profile) return;
  ready.target = priced_host(*ready.target, *profile);
  if (ready.target->host_factor > 0)
    log::info(fmt::format(log_text::host_measured,
                          profile->interpreter_s / host_reference().interpreter_s,
                          ready.target->host_factor));
}

void price_link(OpenJob& ready, JobPredictor& predictor) {
  if (!ready.target) return;
  const std::optional<DeviceProfile> profile = known_profile(ready, predictor);
  const double byte_s = profile ? price_link(ready.target->time, *profile, predictor) : 0;
  if (byte_s > 0) log::info(fmt::format(log_text::link_measured, 1e-6 / byte_s));
}

}  // namespace dstune
