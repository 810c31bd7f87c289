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
  /// Likewise; −1 where a token has none.
  [[nodiscard]] const std::int32_t* targets() const { return targets_.data(); }

 private:
  void fill_next_tokens(std::int64_t step, std::int64_t sample, std::size_t row);
  void fill_masked_tokens(std::int64_t step, std::int64_t sample, std::size_t row);

  std::uint64_t seed_;
  Objective objective_;
  std::int64_t masked_;  ///< of a sequence
  std::int64_t group_size_, group_rank_, samples_, sequence_, vocabulary_;
  std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace dstune::train
