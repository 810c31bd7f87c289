#pragma once
/// The tokens and targets of one micro-step of one rank. docs/reference-step.md, section 3.

#include <cstdint>

#include "dstune/plan/step_plan.hpp"

namespace dstune::train {

class MicroBatch {
 public:
  MicroBatch(const StepPlan& plan, std::uint64_t seed);

  /// Both are [micro-batch, sequence length]; the target is −1 where a token has none.
  struct Tokens {
    std::int32_t* tokens;
    std::int32_t* targets;
  };
  [[nodiscard]] std::int64_t rows() const { return samples_ * sequence_; }
  /// Sample i of micro-step a on group rank r is sample (a·group size + r)·micro-batch + i of the
  /// step's global batch.
  void fill(std::int64_t step, std::int64_t micro_step, Tokens to) const;

 private:
  void fill_next_tokens(std::int64_t step, std::int64_t sample, Tokens to) const;
  void fill_masked_tokens(std::int64_t step, std::int64_t sample, Tokens to) const;

  std::uint64_t seed_;
  Objective objective_;
  std::int64_t masked_;  ///< of a sequence
  std::int64_t group_size_, group_rank_, samples_, sequence_, vocabulary_;
};

}  // namespace dstune::train
