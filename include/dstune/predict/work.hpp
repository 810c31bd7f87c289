#pragma once
/// The key of an operation's time: which kernel or collective, on which types, of which sizes.
/// Operations that are equal here take equally long, so that one measured time serves all of them.
/// All functions: Local.

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dstune/base/operands.hpp"
#include "dstune/base/text.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune {

[[nodiscard]] const EnumTexts& texts_of(WorkKind);
[[nodiscard]] constexpr bool is_product(WorkKind kind) {
  return kind == WorkKind::matmul || kind == WorkKind::matmul_activation_forward ||
         kind == WorkKind::matmul_activation_backward || kind == WorkKind::matmul_bias_backward;
}
[[nodiscard]] constexpr bool is_collective(WorkKind kind) {
  return kind >= WorkKind::all_reduce;
}

/// How it is done, as bits: everything else that a kernel's time depends on.
enum class WorkFlag : std::uint8_t {
  transpose_a,
  transpose_b,
  accumulate,          ///< the result is added to; for norms: to d_x
  accumulate_weights,  ///< norms, and the positions' table
  bias,
  rms,
  residual,  ///< a norm that adds two inputs first
  gated,
  causal,
  separate_model,  ///< an update: the model's parameters are another array than the master's
  to_shards,
  to_host,
  to_device,
  gelu_tanh,
  gelu,
  relu,
  silu,
  tanh,
};
inline constexpr int num_work_flags = static_cast<int>(WorkFlag::tanh) + 1;
[[nodiscard]] const EnumTexts& texts_of(WorkFlag);

[[nodiscard]] const EnumTexts& texts_of(DType);  ///< "f32", "bf16", …

struct Work {
  WorkKind kind = WorkKind::add;
  DType type = DType::f32;      ///< of what is read
  DType out_type = DType::f32;  ///< of what is written
  std::uint32_t flags = 0;      ///< bit f: WorkFlag f
  std::int64_t width = 0;
  std::int64_t depth = 0;
  std::int64_t size = 0;  ///< what a curve of times runs over

  constexpr Work& set(WorkFlag flag, bool is_set = true) {
    if (is_set) flags |= std::uint32_t{1} << static_cast<unsigned>(flag);
    return *this;
  }
  [[nodiscard]] bool has(WorkFlag flag) const {
    return (flags >> static_cast<unsigned>(flag) & 1U) != 0;
  }
  bool operator==(const Work&) const = default;
};

/// A product and its activation, or the gradient of a bias beside it, as two operations, where they
/// are one.
[[nodiscard]] std::optional<std::pair<Work, Work>> parts_of(const Work& work);

/// Tells whether they differ in size at most.
[[nodiscard]] bool is_same_curve(const Work& one, const Work& other);
/// Floating-point operations of products and attention, bytes moved of everything else: what time
/// is proportional to where nothing better is known.
[[nodiscard]] double amount(const Work& work);

/// Returns the work of an operation of the plan. Nothing for those that only order others, and for
/// collectives in a group of one.
[[nodiscard]] std::optional<Work> work_of(const StepPlan& plan, const Operation& operation);
/// Returns the work of making the tokens of a micro-step, which is no operation.
[[nodiscard]] Work work_of_tokens(const StepPlan& plan);

}  // namespace dstune
