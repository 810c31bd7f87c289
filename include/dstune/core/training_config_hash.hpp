#pragma once
/// For tables of configurations. Local.

#include <cstddef>
#include <functional>
#include <type_traits>

#include "dstune/core/training_config.hpp"

namespace dstune {

struct TrainingConfigHash {
  std::size_t operator()(const TrainingConfig& config) const {
    std::size_t hash = 0;
    for_each_member(config, [&](const char*, const auto& member) {
      hash = hash * 0x9E3779B97F4A7C15 + std::hash<std::decay_t<decltype(member)>>()(member);
    });
    return hash;
  }
};

}  // namespace dstune
