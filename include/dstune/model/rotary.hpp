#pragma once
/// Angles of rotary positions, scaled for long contexts as transformers' rope types scale them.

#include <cstdint>
#include <vector>

namespace dstune {

struct ModelSpec;

/// transformers' rope_type. Its "dynamic" acts on sequences beyond max_positions alone, and none is
/// longer here: it is plain.
enum class RopeKind { plain, linear, yarn, longrope, llama3 };

/// What of a Hugging Face config's rope_parameters (rope_scaling) its kind needs, by transformers'
/// names; formulas: docs/reference-step.md, section 4.
struct RopeScaling {
  RopeKind kind = RopeKind::plain;
  double factor = 1;                                  ///< linear, yarn, llama3
  std::int64_t original_positions = 0;                ///< yarn, longrope, llama3
  double low_freq_factor = 1, high_freq_factor = 4;   ///< llama3
  double beta_fast = 32, beta_slow = 1;               ///< yarn
  bool truncate = true;                               ///< yarn
  double attention_factor = 1;                        ///< yarn, longrope: of cosines and sines
  std::vector<double> short_factor{}, long_factor{};  ///< longrope: one for each frequency
  bool operator==(const RopeScaling&) const = default;
};

/// Pair i of a head's rotated elements turns by position·frequencies[i], and becomes `magnitude`
/// times as long.
struct RotaryAngles {
  std::vector<double> frequencies;  ///< rotary_size() / 2
  double magnitude = 1;
};
/// For sequences of that length.
[[nodiscard]] RotaryAngles rotary_angles(const ModelSpec& model, std::int64_t sequence_length);

}  // namespace dstune
