#pragma once
/// What a configuration makes the step do, without what has no effect at its stage. Local.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dstune/core/experiment.hpp"

namespace dstune {

/// The configuration with every knob that does not act at its ZeRO stage at its default.
TrainingConfig effective_config(const TrainingConfig& config);

/// 128 bits of a hash: among millions of members, equal ones are taken for the same thing.
struct Fingerprint {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Fingerprint&) const = default;
};
struct FingerprintHash {
  std::size_t operator()(const Fingerprint& fingerprint) const { return fingerprint.low; }
};

Fingerprint fingerprint(std::string_view text);
/// Of everything that decides what runs.
Fingerprint fingerprint(const TrainingConfig& config, const GroupShape& shape);

}  // namespace dstune
