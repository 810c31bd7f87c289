#pragma once
/// The parts of the table of knobs, and the words its rows are written in.

#include <span>

#include "dstune/core/knobs.hpp"

namespace dstune::rows {

constexpr double unbounded = std::numeric_limits<double>::infinity();
constexpr unsigned stages_1_2 = 0b0110;
constexpr unsigned stages_1_2_3 = 0b1110;
constexpr unsigned stage_2 = 0b0100;
constexpr unsigned stage_3 = 0b1000;

using enum KnobEffect;

constexpr Knob flag(std::string_view pointer, std::string_view fallback, KnobEffect effect,
                    std::string_view help) {
  return {.pointer = pointer,
          .type = KnobType::boolean,
          .fallback = fallback,
          .effect = effect,
          .help = help};
}
constexpr Knob integer(std::string_view pointer, std::string_view fallback, double low,
                       KnobEffect effect, std::string_view help) {
  return {.pointer = pointer,
          .type = KnobType::integer,
          .fallback = fallback,
          .low = low,
          .effect = effect,
          .help = help};
}
constexpr Knob number(std::string_view pointer, std::string_view fallback, double low, double high,
                      KnobEffect effect, std::string_view help) {
  return {.pointer = pointer,
          .type = KnobType::number,
          .fallback = fallback,
          .low = low,
          .high = high,
          .effect = effect,
          .help = help};
}
/// `choices` empty: any text.
constexpr Knob text(std::string_view pointer, std::string_view fallback, std::string_view choices,
                    KnobEffect effect, std::string_view help) {
  return {.pointer = pointer,
          .type = KnobType::text,
          .fallback = fallback,
          .effect = effect,
          .help = help,
          .choices = choices};
}
constexpr Knob list(std::string_view pointer, std::string_view fallback, KnobEffect effect,
                    std::string_view help) {
  return {.pointer = pointer,
          .type = KnobType::list,
          .fallback = fallback,
          .effect = effect,
          .help = help};
}
constexpr Knob section(std::string_view pointer, KnobEffect effect, std::string_view help) {
  return {.pointer = pointer,
          .type = KnobType::object,
          .fallback = "null",
          .effect = effect,
          .help = help};
}
constexpr Knob closed(Knob knob) {
  knob.closed = true;
  return knob;
}
constexpr Knob at(unsigned stages, Knob knob) {
  knob.stages = stages;
  return knob;
}
constexpr Knob up_to(double high, Knob knob) {
  knob.high = high;
  return knob;
}
constexpr Knob acting(Knob knob, void (*apply)(TrainingConfig&, const KnobValue&)) {
  knob.apply = apply;
  return knob;
}
constexpr Knob instead(std::string_view mend, Knob knob) {
  knob.mend = mend;
  return knob;
}

std::span<const Knob> zero_stage();
std::span<const Knob> zero_offload();
std::span<const Knob> precision();
std::span<const Knob> optimizer();
std::span<const Knob> engine();

}  // namespace dstune::rows
