#pragma once
/// A configuration and where it runs, as a key of tables. Local.

#include <cstddef>

#include "dstune/core/experiment.hpp"

namespace dstune {

struct Placed {
  TrainingConfig config;
  GroupShape shape;
  bool operator==(const Placed&) const = default;
};

struct PlacedHash {
  std::size_t operator()(const Placed& placed) const {
    std::size_t hash = TrainingConfigHash()(placed.config);
    mix_hash(hash, placed.shape.num_gpus);
    mix_hash(hash, placed.shape.num_nodes);
    return hash;
  }
};

}  // namespace dstune
