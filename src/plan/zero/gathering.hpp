#pragma once
/// Stage 3's parameters of one rank: which stay whole, and what is gathered when.

#include <memory>
#include <optional>

#include "zero/gather_schedule.hpp"
#include "zero/layout.hpp"

namespace dstune::plan {

/// The model as it is traced in the first micro-step of all, and what of it stays whole: all that
/// does not depend on how far ahead is gathered later on.
struct TracedGathers {
  std::vector<Piece> pieces;
  ModuleTrace trace;
  /// By piece: it stays whole from its first use on, the update gathers it anew.
  std::vector<bool> kept;
  /// By piece: where, in a tensor of so many elements. The pieces of a parameter that is kept as a
  /// whole lie one after another.
  std::vector<std::int64_t> kept_offset;
  std::int64_t kept_elements = 0;
  std::vector<bool> kept_whole;  ///< by parameter: all pieces of it are kept
  MicroStepGathers first;        ///< of the first micro-step of all
  /// Of what is above, behind that micro-step; none where it fails.
  std::optional<GatherSchedule> schedule;
  std::string failure;
};

struct Gathering {
  std::shared_ptr<const TracedGathers> traced;
  /// Why DeepSpeed could not run it; it can not be planned then.
  std::string failure;

  MicroStepGathers second;  ///< of the second, where it belongs to the first optimizer step, too
  MicroStepGathers steady;  ///< of every later one
};

/// Where layout.gathers().
[[nodiscard]] Gathering plan_gathering(const ModelSpec& model, const Layout& layout,
                                       const TrainingConfig& config);

/// Those of one model's plans: configurations that gather alike share one, and those that differ in
/// how far ahead share what is traced. Most spaces have few.
class Gatherings {
 public:
  /// As plan_gathering. It holds until the next call.
  const Gathering& of(const ModelSpec& model, const Layout& layout, const TrainingConfig& config);

 private:
  /// All that a gathering depends on, where no parameter is on a disk.
  struct TracingKnobs {
    bool recomputes;
    std::int64_t granularity, persistent_parameter, persistent_model;
    int group_size;
    bool quantizes_weights;
    std::int64_t shards_of_secondary;
    LeafModules leaf_modules;
    bool operator==(const TracingKnobs&) const = default;
  };
  struct Knobs {
    TracingKnobs tracing;
    bool accumulates, is_sequential;
    std::int64_t prefetch_bucket, max_live, max_reuse;
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
