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

/// Where layout.gathers().
[[nodiscard]] Gathering plan_gathering(const ModelSpec& model, const Layout& layout,
                                       const TrainingConfig& config);

/// Those of one model's plans: configurations that gather alike share one. Most spaces have few.
class Gatherings {
 public:
  /// As plan_gathering. It holds until the next call.
  const Gathering& of(const ModelSpec& model, const Layout& layout, const TrainingConfig& config);

 private:
  /// All that a gathering depends on, where no parameter is on a disk.
  struct Knobs {
    bool accumulates, recomputes, is_sequential;
    std::int64_t granularity, persistent_parameter, persistent_model;
    std::int64_t prefetch_bucket, max_live, max_reuse;
    int group_size;
    bool quantizes_weights;
    std::int64_t shards_of_secondary;
    LeafModules leaf_modules;
    bool operator==(const Knobs&) const = default;
  };
  struct Known {
    Knobs knobs;
    Gathering gathering;
  };
  static constexpr std::size_t most_known = 8;

  std::vector<Known> known_;
  std::size_t next_ = 0;  ///< the one that makes room
  Gathering from_disk_;
};

}  // namespace dstune::plan
