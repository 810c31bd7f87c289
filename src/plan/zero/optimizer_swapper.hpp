#pragma once
/// Updates sub-groups whose states are on a disk, one after the other by way of the swap buffers:
/// DeepSpeed's swappers, the plain one and the pipelined one.

#include <optional>
#include <string>
#include <vector>

#include "zero/swapped_gradients.hpp"

namespace dstune::plan {

class OptimizerSwapper {
 public:
  OptimizerSwapper(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                   const PersistentTensors& tensors);

  /// States and gradients of a sub-group on the host; compute has waited for them. The next one is
  /// on its way where reading is pipelined.
  UpdateStates swap_in(std::size_t group);
  /// They are written after what the host was given so far. Compute waits unless writing is
  /// pipelined and another sub-group follows.
  void swap_out(std::size_t group);

 private:
  struct Swap {
    std::vector<UpdateStates::Place> states;
    std::vector<std::size_t> buffers;  // of the states, in their order
    int event = 0;
  };

  Swap read(std::size_t group);
  void wait_for_write(const Swap& write);
  [[nodiscard]] std::optional<std::size_t> next_after(std::size_t group) const;
  Emitter& emitter_;
  const PersistentTensors& tensors_;
  bool reads_ahead_, writes_behind_;
  SwappedGradients gradients_;
  std::vector<std::size_t> free_;
  std::optional<Swap> current_, ahead_, behind_;
};

}  // namespace dstune::plan
