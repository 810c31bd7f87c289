#pragma once
/// Layers of a model that do the same in a micro-step, found by what the schedule of gathers and
/// the buckets of gradients do at each; and the model without those that others can stand for.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dstune/core/training_config.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/model/parameter_table.hpp"
#include "zero/gathering.hpp"
#include "zero/layout.hpp"

namespace dstune::plan {

/// The lists of a micro-step that follow from no disk.
inline constexpr std::array gather_lists{&MicroStepGathers::fetched, &MicroStepGathers::prefetched,
                                         &MicroStepGathers::released};

/// Layers are those of the folded model: [0, split) are the whole model's first ones, [split, …)
/// its last ones, and `left_out` lie between them. In forward the `period` layers before the split
/// stand for these, too, in backward those behind it.
struct LayerFold {
  int period = 1;
  int split = 0;
  int left_out = 0;  ///< a multiple of the period
  /// From here on forward, and from below here on backward, layers repeat each other.
  int alike_from = 0, alike_to = 0;
};

/// The fold that leaves out most layers, or the first one that leaves out half. Nothing where too
/// few repeat each other, or where an operation of a layer depends on more than that layer's place
/// in the period, or follows backward: on a disk, on the owners of stages 1 and 2, on parts of an
/// optimizer that is offloaded by a ratio, or where BF16_Optimizer adds up behind backward.
[[nodiscard]] std::optional<LayerFold> find_fold(const ModelSpec& model, const Layout& layout,
                                                 const TrainingConfig& config,
                                                 const Gathering* gathering);

/// The model that a fold leaves, and what is planned for it.
struct FoldedModel {
  LayerFold fold;
  ModelSpec model;
  std::unique_ptr<const ParameterTable> table;
  Layout layout;
  std::optional<Gathering> gathering;  ///< `steady` alone is there

  FoldedModel(const LayerFold& fold, const ModelSpec& whole, const Layout& of_whole,
              const TrainingConfig& config, const Gathering* gathering);
};

/// Those of one model's plans: configurations that fold alike share one.
class FoldedModels {
 public:
  /// Null where nothing is folded. It holds until the next call.
  const FoldedModel* of(const ModelSpec& model, const Layout& layout, const TrainingConfig& config,
                        const Gathering* gathering);

 private:
  struct Known {
    TrainingConfig config;
    int group_size = 0;
    std::unique_ptr<const FoldedModel> folded;
  };
  static constexpr std::size_t max_known = 64;

  std::vector<Known> known_;
  std::size_t next_ = 0;  ///< the one that makes room
};

}  // namespace dstune::plan
