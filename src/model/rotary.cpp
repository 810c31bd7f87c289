/// Rotary positions: rope_scaling of older Hugging Face configs, rope_parameters of newer ones, and
/// the angles that follow.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "reading.hpp"

namespace dstune::model {
namespace {

constexpr double largest_factor = 1e6;

/// "su" is what longrope was called at first.
constexpr EnumText rope_names[] = {
    enum_text(RopeKind::plain, "default"),     enum_text(RopeKind::plain, "dynamic"),
    enum_text(RopeKind::linear, "linear"),     enum_text(RopeKind::yarn, "yarn"),
    enum_text(RopeKind::longrope, "longrope"), enum_text(RopeKind::longrope, "su"),
    enum_text(RopeKind::llama3, "llama3"),
};

/// YaRN's advice for how much longer rotated heads become.
double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

/// Reads the section of a rope type that stretches.
class ScalingReader {
 public:
  ScalingReader(const Config& config, const Config& section, const ModelSpec& spec)
      : config_(config), section_(section), spec_(spec) {}

  RopeScaling read(RopeKind kind) {
    RopeScaling rope{.kind = kind};
    if (kind == RopeKind::plain) return rope;
    if (kind != RopeKind::linear) {
      // A number beside the section is the one that counts.
      const Config& place = config_.find({"original_max_position_embeddings"}) ? config_ : section_;
      rope.original_positions =
          place.size({"original_max_position_embeddings"}, spec_.max_positions);
    }
    const double stretched =
        static_cast<double>(spec_.max_positions) /
        static_cast<double>(std::max<std::int64_t>(1, rope.original_positions));
    const bool follows = kind == RopeKind::yarn || kind == RopeKind::longrope;
    rope.factor = follows ? number("factor", stretched) : needed("factor");
    switch (kind) {
      case RopeKind::llama3:
        rope.low_freq_factor = needed("low_freq_factor");
        rope.high_freq_factor = needed("high_freq_factor");
        if (rope.high_freq_factor <= rope.low_freq_factor)
          refuse(fmt::format("high_freq_factor {} is not above low_freq_factor {}",
                             rope.high_freq_factor, rope.low_freq_factor));
        break;
      case RopeKind::yarn:
        rope.beta_fast = number("beta_fast", 32);
        rope.beta_slow = number("beta_slow", 1);
        rope.truncate = section_.boolean("truncate", true);
        rope.attention_factor = number("attention_factor", yarn_attention_factor(rope.factor));
        break;
      case RopeKind::longrope:
        rope.short_factor = factors("short_factor");
        rope.long_factor = factors("long_factor");
        rope.attention_factor = number("attention_factor", longrope_attention_factor(rope));
        rope.factor = 1;  // it is in the others
        break;
      default:
        break;
    }
    return rope;
  }

 private:
  [[nodiscard]] double number(const char* name, double fallback) const {
    return section_.number({name}, fallback, 1e-6, largest_factor);
  }
  /// NaN where it is missing, which no comparison finds fault with a second time.
  [[nodiscard]] double needed(const char* name) const {
    if (!section_.find({name})) refuse(fmt::format("{} is missing", name));
    return number(name, std::numeric_limits<double>::quiet_NaN());
  }
  [[nodiscard]] std::vector<double> factors(const char* name) const {
    const auto half = static_cast<std::size_t>(spec_.rotary_size() / 2);
    std::vector<double> result;
    const auto list = section_.find({name});
    if (list && list->is_array()) {
      for (const json::Node& each : list->elements())
        result.push_back(each.number(section_.problems(), 1e-6, largest_factor).value_or(1));
    }
    if (result.size() != half)
      refuse(fmt::format("{} has {} numbers; a head has {} frequencies: give one for each", name,
                         result.size(), half));
    return result;
  }
  [[nodiscard]] double yarn_attention_factor(double factor) const {
    const double scale = number("mscale", 0);
    const double all = number("mscale_all_dim", 0);
    if (scale > 0 && all > 0) return yarn_magnitude(factor, scale) / yarn_magnitude(factor, all);
    return yarn_magnitude(factor, 1);
  }
  [[nodiscard]] static double longrope_attention_factor(const RopeScaling& rope) {
    if (rope.factor <= 1) return 1;
    return std::sqrt(1 + std::log(rope.factor) /
                             std::log(static_cast<double>(rope.original_positions)));
  }
  void refuse(std::string message) const { section_.refuse(section_.node(), std::move(message)); }

  const Config& config_;
  const Config& section_;
  const ModelSpec& spec_;
};

std::optional<RopeKind> kind_of(const Config& section, const char* name, ModelFamily family) {
  const auto type = section.find({"rope_type", "type"});
  if (!type) return RopeKind::plain;
  const auto word = type->string(section.problems());
  if (!word) return std::nullopt;
  // transformers reads Phi-3's early files so.
  if (family == ModelFamily::phi3 && *word == "yarn") return RopeKind::longrope;
  const auto kind = section.value_of(rope_names, *word, *type, fmt::format("{} of type", name));
  return kind ? std::optional(static_cast<RopeKind>(*kind)) : std::nullopt;
}

void read_rotary_fraction(const Config& section, ModelSpec& spec) {
  const Config::Names names = {"partial_rotary_factor", "rotary_pct"};
  double& fraction = spec.architecture.rotary_fraction;
  const double given = section.number(names, fraction, 0.0, 1.0);
  // The modules of the others rotate whole heads, whatever the key says.
  const bool acts = spec.family == ModelFamily::phi3 || spec.family == ModelFamily::gpt_neox;
  if (!acts && given != fraction) {
    section.refuse(*section.find(names),
                   fmt::format("a rotated part of {} acts on no layer of {}: remove it", given,
                               to_text(spec.family)));
    return;
  }
  fraction = given;
}

}  // namespace

void Config::read_rope(ModelSpec& spec) const {
  spec.rope_theta = number({"rope_theta", "rotary_emb_base"}, spec.rope_theta, 1.0, 1e12);
  read_rotary_fraction(*this, spec);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto node = find({name});
    if (!node || !node->expect_object(problems_)) continue;
    // Gemma 3 has one for layers with a window, and one for the others.
    const auto of_full_layers = node->find("full_attention");
    const Config section(of_full_layers ? *of_full_layers : *node, problems_);
    spec.rope_theta = section.number({"rope_theta"}, spec.rope_theta, 1.0, 1e12);
    read_rotary_fraction(section, spec);
    if (const auto kind = kind_of(section, name, spec.family))
      spec.rope = ScalingReader(*this, section, spec).read(*kind);
  }
}

}  // namespace dstune::model

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

RotaryAngles local_rotary_angles(const ModelSpec& model) {
  if (model.rope_local_theta == 0) return {};
  ModelSpec local = model;
  local.rope_theta = model.rope_local_theta;
  local.rope = {};
  return rotary_angles(local, model.max_positions);
}

}  // namespace dstune
