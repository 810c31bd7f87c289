#pragma once
/// The first lines of a plan: model, machine, training. Local.

#include <string>
#include <vector>

#include "dstune/report/dry_run.hpp"

namespace dstune {

/// A setting of the members: its name, and its values in the order of the members.
struct MemberSetting {
  std::string name;                 ///< as in TrainingConfig: "micro_batch", or "num_gpus"
  std::vector<json::Value> values;  ///< the first few
  std::uint64_t num_values = 0;
  json::Value least, most;     ///< of numbers
  bool follows_stage = false;  ///< it differs between ZeRO stages alone, as a stage's default does
};
/// All settings of the members that are not pruned; of those where all are.
[[nodiscard]] std::vector<MemberSetting> settings_of(const DryRun& plan);

/// At most four lines, without DryRun::from_command and DryRun::assumptions.
[[nodiscard]] std::vector<std::string> head_lines(const DryRun& plan);
[[nodiscard]] json::Value head_json(const DryRun& plan);

}  // namespace dstune
