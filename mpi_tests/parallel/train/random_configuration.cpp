#include "random_configuration.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "dstune/core/settings.hpp"

namespace dstune::test {
namespace {

/// Elements of the models that are trained, roughly: sizes beyond make no difference.
constexpr double largest_size = 200'000;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool comes_true(double probability) { return unit() < probability; }

 private:
  std::mt19937_64 engine_;
};

/// Texts that a row takes: its choices, or what is said here.
std::vector<std::string> words_of(const Knob& knob) {
  if (knob.pointer == "/optimizer/type" && knob.choices.empty())
    return {"Adam", "AdamW", "Lion", "SGD", "Adagrad"};
  std::vector<std::string> words;
  for (const std::string_view choice : choices_of(knob.choices)) words.emplace_back(choice);
  return words;
}

json::Value draw_integer(const Knob& knob, Dice& dice) {
  const double low = std::isfinite(knob.low) ? knob.low : -1;
  const double large = std::floor(std::exp(dice.unit() * std::log(largest_size)));
  const double small = low + static_cast<double>(dice.below(8));
  const double drawn = dice.comes_true(0.4) ? small : large;
  return static_cast<std::int64_t>(std::clamp(drawn, low, std::min(knob.high, 2 * largest_size)));
}

json::Value draw_number(const Knob& knob, Dice& dice) {
  const json::Value fallback = json::Value::parse(knob.fallback);
  const double usual = fallback.is_number() ? fallback.get<double>() : 0;
  if (std::isfinite(knob.low) && std::isfinite(knob.high) && knob.high < 1e6 &&
      dice.comes_true(0.5))
    return knob.low + (knob.high - knob.low) * dice.unit();
  const double drawn = usual == 0 ? 0.1 * dice.unit() : usual * std::pow(10, 2 * dice.unit() - 1);
  return std::clamp(drawn, knob.low, knob.high);
}

/// A row that is drawn, and its texts.
struct Drawable {
  const Knob* knob;
  std::vector<std::string> words;
  json::Value::json_pointer place;
  bool is_element;        ///< of a list
  bool is_first_element;  ///< … with which the others come
};

/// Null where the row has no value to be drawn.
json::Value draw_value(const Drawable& drawable, Dice& dice) {
  const Knob& knob = *drawable.knob;
  switch (knob.type) {
    case KnobType::boolean:
      return dice.comes_true(0.5);
    case KnobType::integer:
      return draw_integer(knob, dice);
    case KnobType::number:
      return draw_number(knob, dice);
    case KnobType::text: {
      const std::vector<std::string>& words = drawable.words;
      if (!words.empty()) return words[dice.below(words.size())];
      return nullptr;
    }
    case KnobType::list: {
      // Modules: classes and ends of names that some of the models have.
      const std::vector<std::string> words{"mlp",       "attn",   "0",   "1.mlp",
                                           "GPT2Block", "Linear", "MLP", "LlamaDecoderLayer"};
      if (!knob.of_texts) return nullptr;
      return json::Value::array({words[dice.below(words.size())]});
    }
    default:
      return nullptr;
  }
}

bool is_element(std::string_view pointer) {
  return std::isdigit(static_cast<unsigned char>(pointer.back())) != 0;
}

/// Batch sizes are no knobs of the table here: they are the caller's.
bool is_drawn(const Knob& knob) {
  return knob.apply != nullptr ||
         (knob.effect == KnobEffect::measured && !words_of(knob).empty()) ||
         (knob.effect == KnobEffect::measured && knob.type == KnobType::boolean);
}

constexpr std::array<Version, 4> drawn_releases{{{0, 16, 9}, {0, 17, 6}, {0, 19, 6}, {0, 19, 8}}};

/// One release as often as another.
const KnobTable& table_of(std::uint64_t seed) {
  return knob_table(drawn_releases[seed % drawn_releases.size()]);
}

std::vector<Drawable> find_drawables(const KnobTable& table) {
  std::vector<Drawable> found;
  for (const Knob& knob : table.knobs()) {
    if (!is_drawn(knob)) continue;
    found.push_back({&knob, words_of(knob), json::Value::json_pointer(std::string(knob.pointer)),
                     is_element(knob.pointer), knob.pointer.ends_with("/0")});
  }
  return found;
}

json::Value draw_config(const KnobTable& table, Dice& dice) {
  static std::map<const KnobTable*, std::vector<Drawable>> of_table;
  std::vector<Drawable>& drawables = of_table[&table];
  if (drawables.empty()) drawables = find_drawables(table);
  json::Value config = json::Value::object();
  const auto at = [&](std::string_view pointer) -> json::Value& {
    return config[json::Value::json_pointer(std::string(pointer))];
  };
  const int stage = static_cast<int>(dice.below(4));
  // One precision comes as often as another, though few would be switched on by chance.
  const std::uint64_t precision = dice.below(3);
  bool writes_element = false;
  for (const Drawable& drawable : drawables) {
    const Knob& knob = *drawable.knob;
    // The elements of a list come together.
    const bool writes = drawable.is_element && !drawable.is_first_element
                            ? writes_element
                            : dice.comes_true(knob.acts_at(stage) ? 0.3 : 0.03);
    if (drawable.is_element) writes_element = writes;
    if (!writes) continue;
    const json::Value value = draw_value(drawable, dice);
    if (!value.is_null()) config[drawable.place] = value;
  }
  at("/zero_optimization/stage") = stage;
  if (precision == 1) at("/bf16/enabled") = true;
  if (precision == 2) at("/fp16/enabled") = true;
  // Beside most of what is drawn DeepSpeed refuses it.
  const json::Value::json_pointer norm("/zero_optimization/compute_grad_norm");
  if (config.contains(norm) && config[norm] == false) {
    at("/gradient_clipping") = 0.0;
    for (const char* key : {"offload_optimizer", "cpu_offload"})
      config["zero_optimization"].erase(key);
  }
  return config;
}

std::vector<Recompute> all_recompute_modes() {
  std::vector<Recompute> modes;
  try {
    for (int mode = 0;; ++mode) {
      modes.push_back(static_cast<Recompute>(mode));
      (void)to_text(modes.back());
    }
  } catch (const LogicError&) {
    modes.pop_back();
  }
  return modes;
}

/// Without a seed; none where it is refused.
std::optional<RandomConfiguration> read_draft(const KnobTable& table, const json::Value& draft) {
  // Through its text, as a user's.
  const json::Document document = json::Document::parse(draft.dump(), "random.json");
  json::Problems problems;
  RandomConfiguration result;
  result.config = training_config(read_config(table, document.node(), problems));
  if (!problems.empty()) return std::nullopt;
  result.ds_config = document.root();
  return result;
}

}  // namespace

bool is_of_drawn_release(std::string_view pointer) {
  return std::ranges::any_of(drawn_releases, [&](Version release) {
    return knob_table(release).find_knob(pointer) != nullptr;
  });
}

json::Value first_draft(std::uint64_t seed) {
  Dice dice(seed);
  return draw_config(table_of(seed), dice);
}

RandomConfiguration draw_configuration(std::uint64_t seed) {
  Dice dice(seed);
  int refused = 0;
  const KnobTable& table = table_of(seed);
  std::optional<RandomConfiguration> drawn = read_draft(table, draw_config(table, dice));
  for (; !drawn; ++refused) drawn = read_draft(table, draw_config(table, dice));
  drawn->seed = seed;
  drawn->refused = refused;
  const std::vector<Recompute> modes = all_recompute_modes();
  drawn->config.recompute = modes[dice.below(modes.size())];
  drawn->model_number = dice.below(1 << 16);
  drawn->split_number = dice.below(1 << 16);
  return *drawn;
}

}  // namespace dstune::test
