#include "dstune/model/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "dstune/base/error.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {
namespace {

using Frequencies = std::vector<double>;

constexpr double turn = 2 * std::numbers::pi;

/// Low frequencies are divided by the factor, high ones stay, those between go over smoothly.
void scale_llama3(Frequencies& frequencies, const RopeScaling& rope) {
  for (double& frequency : frequencies) {
    const double turns = static_cast<double>(rope.original_positions) * frequency / turn;
    const double share = std::clamp(
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    frequency = (1 - share) * frequency / rope.factor + share * frequency;
  }
}

/// The same, with a ramp over the frequencies' numbers in between.
void scale_yarn(Frequencies& frequencies, const RopeScaling& rope, double theta) {
  const auto size = static_cast<double>(2 * frequencies.size());
  const auto number_of = [&](double turns) {
    const double positions = static_cast<double>(rope.original_positions) / (turns * turn);
    return size * std::log(positions) / (2 * std::log(theta));
  };
  double low = number_of(rope.beta_fast);
  double high = number_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double share = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = share * frequencies[i] / rope.factor + (1 - share) * frequencies[i];
  }
}

void divide(Frequencies& frequencies, const std::vector<double>& factors) {
  require(factors.size() == frequencies.size(), "every frequency has a factor");
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

}  // namespace

RotaryAngles rotary_angles(const ModelSpec& model, std::int64_t sequence_length) {
  const RopeScaling& rope = model.rope;
  const std::int64_t size = model.rotary_size();
  Frequencies frequencies;
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(size);
    frequencies.push_back(std::pow(model.rope_theta, exponent));
  }
  switch (rope.kind) {
    case RopeKind::plain:
      break;
    case RopeKind::linear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeKind::yarn:
      scale_yarn(frequencies, rope, model.rope_theta);
      break;
    case RopeKind::longrope:
      divide(frequencies,
             sequence_length > rope.original_positions ? rope.long_factor : rope.short_factor);
      break;
    case RopeKind::llama3:
      scale_llama3(frequencies, rope);
      break;
  }
  return {std::move(frequencies), rope.attention_factor};
}

}  // namespace dstune
