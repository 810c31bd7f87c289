#pragma once
/// What scripts/tools/deepspeed_fidelity.py has recorded of a space: our own step beside DeepSpeed.
/// Local.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/job.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/search/planner.hpp"

namespace dstune::bench {

struct FidelityRow {
  PlannedMember member;
  double batch = 0;               ///< samples of a step
  std::vector<double> deepspeed;  ///< samples/s, of each pass
  double measured_s = 0;          ///< our own step
  double predicted_s = 0;         ///< 0: it was not predicted
  Overheads overheads{};          ///< of the step in the user's training
};

struct FidelityTable {
  std::vector<FidelityRow> rows;
  std::optional<std::size_t> baseline{};  ///< row; nothing where that was not drawn
  TuningOptions tuning;
  bool is_on_gpus = false;  ///< the table has a "device"
};

/// Throws Error for a table of another space, and what reading the two files throws.
[[nodiscard]] FidelityTable read_fidelity_table(const std::string& space_path,
                                                const std::string& table_path);

/// What tiny engines measured of the target's time, of a file of --profile-out. Throws Error where
/// there is nothing of it, and what reading the file throws.
[[nodiscard]] TargetConstants constants_in(const std::string& profile_path);

}  // namespace dstune::bench
