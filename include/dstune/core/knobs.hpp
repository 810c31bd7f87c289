#pragma once
/// The table of knobs: every key of a DeepSpeed config that is understood, one row each. Adding a
/// knob is adding a row (and what it does, in `plan`).

#include <span>
#include <string_view>

#include "dstune/core/keys.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

struct Knob : Key {
  using Apply = void (*)(TrainingConfig&, const KnobValue&);

  // NOLINTNEXTLINE(google-explicit-constructor): most rows do nothing.
  constexpr Knob(const Key& key, Apply does = nullptr) : Key(key), apply(does) {}

  Apply apply = nullptr;  ///< only where it is measured
};

/// The release whose keys these are.
inline constexpr Version deepspeed_version{0, 19, 6};

/// All rows of that release, sections before their members. A list of fixed length has a row for
/// each element ("/optimizer/params/betas/0").
[[nodiscard]] std::span<const Knob> knobs();
/// The same as a table, whose rows have the same numbers.
[[nodiscard]] const KeyTable& knob_table();
/// The row of a pointer, or null.
[[nodiscard]] const Knob* find_knob(std::string_view pointer);

/// See KeyTable.
[[nodiscard]] bool is_converted(const Knob& knob);
[[nodiscard]] const KnobValue& default_value(const Knob& knob);

}  // namespace dstune
