#pragma once
/// Where blocks are computed again and `cpu_checkpointing` asks for it: their inputs are in host
/// memory between forward and backward. As DeepSpeed 0.19.6 does it
/// (runtime/activation_checkpointing/offload_activations.py): on a stream of its own; the newest
/// input stays on the device, and the one before it is still there when backward begins.
/// DeepSpeed's host issues the copies back ahead of the device; here they begin a block ahead.

#include <vector>

#include "parts/block.hpp"

namespace dstune::plan {

class HostCheckpoints {
 public:
  /// Does nothing where nothing asks for it.
  HostCheckpoints(const Context& context, std::vector<Block>& blocks);

  void after_forward(int layer);
  void before_backward(int layer);

 private:
  struct Checkpoint {
    TensorId host = no_tensor;
    int event = -1;  ///< of the last copy of it
  };

  void send(int layer);
  void drop_from_device(int layer);
  void fetch(int layer);

  [[nodiscard]] TensorId& on_device(int layer) {
    return blocks_[static_cast<std::size_t>(layer)].input();
  }
  [[nodiscard]] Checkpoint& at_layer(int layer) {
    return checkpoints_[static_cast<std::size_t>(layer)];
  }

  const Context& context_;
  std::vector<Block>& blocks_;
  std::vector<Checkpoint> checkpoints_;  // by layer; none where nothing asks for them
};

}  // namespace dstune::plan
