#pragma once
/// Stage 3's parameters of one rank: which stay whole, and what is gathered when.

#include "gather_schedule.hpp"
#include "layout.hpp"

namespace dstune::plan {

struct Gathering {
  ModuleTrace trace;
  /// By piece: it stays whole from its first use on, the update gathers it anew.
  std::vector<bool> kept;
  /// By piece: where, in a tensor of so many elements. The pieces of a parameter that is kept as a
  /// whole lie one after another.
  std::vector<std::int64_t> kept_offset;
  std::int64_t kept_elements = 0;
  std::vector<bool> kept_whole;  ///< by parameter: all pieces of it are kept

  /// Why DeepSpeed could not run it; it can not be planned then.
  std::string failure;

  MicroStepGathers first;   ///< the first micro-step of all
  MicroStepGathers second;  ///< the next one, where it belongs to the first optimizer step, too
  MicroStepGathers steady;  ///< every later one
};

/// Stage 3 only.
[[nodiscard]] Gathering plan_gathering(const ModelSpec& model, const Layout& layout,
                                       const TrainingConfig& config);

}  // namespace dstune::plan
