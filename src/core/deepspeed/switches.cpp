#include <array>

#include "dstune/core/deepspeed_switches.hpp"
#include "dstune/core/deepspeed_version.hpp"

namespace dstune {

namespace {

/// The releases in which a switch is on: from one on, up to another where there is one.
struct SwitchRow {
  bool DeepSpeedSwitches::*member;
  Version since{}, until{};
};

constexpr std::array switch_rows = {
    SwitchRow{&DeepSpeedSwitches::fp32_sums_at_stage_2, {0, 19, 8}},
    SwitchRow{&DeepSpeedSwitches::fp32_sums_are_averaged, {0, 19, 8}},
    SwitchRow{&DeepSpeedSwitches::fp32_sums_stay_on_device, {0, 19, 8}},
    SwitchRow{&DeepSpeedSwitches::offload_waits_for_copies, {0, 19, 8}},
    SwitchRow{&DeepSpeedSwitches::immediate_update_frees_gradients, {0, 19, 8}},
    SwitchRow{&DeepSpeedSwitches::stage_0_partitions_bf16, {}, {0, 17, 6}},
    SwitchRow{&DeepSpeedSwitches::twin_flow_keeps_last_part, {0, 18, 9}},
    SwitchRow{&DeepSpeedSwitches::parameters_return_by_buffer, {0, 17, 6}},
};

}  // namespace

DeepSpeedSwitches switches_of(const Version& version) {
  DeepSpeedSwitches switches;
  for (const SwitchRow& row : switch_rows)
    switches.*row.member = version >= row.since && (row.until == Version() || version < row.until);
  return switches;
}

}  // namespace dstune
