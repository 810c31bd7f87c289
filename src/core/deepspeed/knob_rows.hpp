#pragma once
/// The parts of the table of knobs, and the words that only its rows are written in.

#include <vector>

#include "dstune/core/key_words.hpp"
#include "dstune/core/knobs.hpp"

namespace dstune::rows {

constexpr unsigned stages_0_1_2 = 0b0111;
constexpr unsigned stage_1 = 0b0010;
constexpr unsigned stages_1_2 = 0b0110;
constexpr unsigned stages_1_3 = 0b1010;
constexpr unsigned stages_1_2_3 = 0b1110;
constexpr unsigned stage_2 = 0b0100;
constexpr unsigned stage_3 = 0b1000;

/// A measured row whose type and default are those of a member of TrainingConfig, at the end of a
/// path; `apply` sets it.
template <auto... path>
Knob sets(std::string_view pointer, Knob::Apply apply, std::string_view help) {
  return {{.pointer = pointer,
           .type = type_of<TrainingConfig, path...>(),
           .fallback = default_of<TrainingConfig, path...>(),
           .effect = measured,
           .help = help},
          apply};
}
/// The value becomes the member's as it is.
template <auto... path>
Knob sets(std::string_view pointer, std::string_view help) {
  return sets<path...>(pointer, assign<TrainingConfig, path...>, help);
}

/// An integer, though the member is a number.
inline Knob as_integer(Knob knob) {
  knob.type = KnobType::integer;
  knob.fallback = knob.fallback.substr(0, knob.fallback.find('.'));
  return knob;
}
constexpr Knob acting(Knob knob, Knob::Apply apply) {
  knob.apply = apply;
  return knob;
}
/// In this order: precision, optimizer and all else of a step; zero_optimization; the rest.
[[nodiscard]] std::vector<Knob> training();
[[nodiscard]] std::vector<Knob> zero();
[[nodiscard]] std::vector<Knob> beside_training();

}  // namespace dstune::rows
