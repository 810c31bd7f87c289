#pragma once
/// The tokens and targets of one micro-step of one rank, made in place: no allocation after the
/// first. docs/reference-step.md, section 3.

#include <cstdint>
#include <vector>

#include "dstune/plan/step_plan.hpp"

namespace dstune::train {

class MicroBatch {
 public:
  MicroBatch(const StepPlan& plan, std::uint64_t seed);

  /// Sample i of micro-step a on group rank r is sample (a·group size + r)·micro-batch + i of the
  /// step's global batch.
  void fill(std::int64_t step, std::int64_t micro_step);
  /// [micro-batch, sequence length]
  [[nodiscard]] const std::int32_t* tokens() const { return tokens_.data(); }
  [[nodiscard]] const std::int32_t* targets() const { return targets_.data(); }

 private:
  std::uint64_t seed_;
  std::int64_t group_size_, group_rank_, samples_, sequence_, vocabulary_;
  std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace dstune::train
