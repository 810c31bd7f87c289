#pragma once
/// The table of knobs: every key of a DeepSpeed 0.19.6 config that is understood, one row each.
/// Parsing, ranges, help, names and the report follow from it; adding a knob is adding a row (and
/// what it does, in `plan`).

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

enum class KnobType { boolean, integer, number, text, object, list };

/// What a knob does to the step that is measured here.
enum class KnobEffect {
  measured,   ///< acts on our step as on DeepSpeed's, at the stages of its row
  inert,      ///< changes nothing that is measured (logging, checkpoints, legacy paths)
  not_built,  ///< acts in DeepSpeed, not yet in our step: one value is kept with a warning
  refused,    ///< any value but its default is refused by name
};

using KnobValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct Knob {
  std::string_view pointer;  ///< JSON pointer in the DeepSpeed config
  KnobType type = KnobType::boolean;
  std::string_view fallback;  ///< DeepSpeed's default, as JSON text
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  unsigned stages = 0b1111;  ///< bit s: it acts at ZeRO stage s
  KnobEffect effect = KnobEffect::inert;
  std::string_view help;
  void (*apply)(TrainingConfig&, const KnobValue&) = nullptr;  ///< only where it is measured
  std::string_view choices = {};  ///< text: the accepted words, separated by '|'
  bool any_case = false;          ///< choices: in capitals too
  bool of_texts = false;          ///< list: of texts, of `choices` where there are any
  bool of_sections = false;       ///< object: its members are objects
  bool closed = false;            ///< object: DeepSpeed refuses keys without a row
  bool model = false;             ///< object: closed, and its values are converted (is_converted)
  bool takes_null = true;         ///< null stands for the default; see also is_converted
  bool takes_auto = true;         ///< "auto" stands for the default
  bool takes_flag = true;         ///< a converted number: from true, false and "7.0" too
  bool takes_float = true;        ///< an integer: 5e8 too
  std::string_view mend = {};     ///< refused: what to write instead, where that is not the default

  [[nodiscard]] bool acts_at(int stage) const { return (stages >> stage & 1U) != 0; }
};

/// A member of a section that DeepSpeed reads by a pydantic model: 5e8 and "7" are integers, "yes"
/// is true; null only where it is the default, "auto" always.
[[nodiscard]] bool is_converted(const Knob& knob);

/// All rows, sections before their members. A list of fixed length has a row for each element
/// ("/optimizer/params/betas/0").
[[nodiscard]] std::span<const Knob> knobs();
/// The row of a pointer, or null.
[[nodiscard]] const Knob* find_knob(std::string_view pointer);

/// The row's default as a value of its type; nothing where it has none.
[[nodiscard]] const KnobValue& default_value(const Knob& knob);

/// A whole config without lists of candidates: read_settings(), objections_to() and
/// training_config() (settings.hpp) in one. `node` is the config's root object.
TrainingConfig read_training_config(const json::Node& node, json::Problems& problems);

}  // namespace dstune
