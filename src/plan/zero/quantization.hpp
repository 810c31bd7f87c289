#pragma once
/// How ZeRO++ cuts what it quantises, as DeepSpeed 0.19.6 does, and where it fails
/// (runtime/zero/partition_parameters.py: CUDAQuantizer; runtime/comm/coalesced_collectives.py).

#include <cstdint>
#include <string>

#include "zero/gathering.hpp"

namespace dstune::plan {

/// Elements that share a scale where so many weights, a multiple of 8, are gathered: the most that
/// divide them, are a multiple of 8, and make as many runs as runs of 8000 would be or more.
[[nodiscard]] std::int64_t weights_of_a_scale(std::int64_t elements);

/// Nodes over which gradients are reduced quantised; 0: they are not.
[[nodiscard]] int quantizing_nodes(const Layout& layout, const TrainingConfig& config);
/// A matrix that falls into even parts for all ranks; the gradients of everything else are reduced
/// as they are.
[[nodiscard]] bool is_gradient_quantized(const Layout& layout, const Piece& piece);
/// Elements that share a scale in the gradient of a matrix.
[[nodiscard]] std::int64_t gradients_of_a_scale(const Layout& layout, const Piece& piece);

/// Why DeepSpeed's quantisation would fail; empty where it would not.
[[nodiscard]] std::string weights_violation(const Layout& layout, const Gathering& gathering,
                                            const TrainingConfig& config);
[[nodiscard]] std::string gradients_violation(const Layout& layout, const TrainingConfig& config);

}  // namespace dstune::plan
