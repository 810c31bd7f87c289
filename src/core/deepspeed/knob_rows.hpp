#pragma once
/// The parts of the table of knobs, and the words its rows are written in.

#include <span>

#include "dstune/core/knobs.hpp"

namespace dstune::rows {

constexpr double unbounded = std::numeric_limits<double>::infinity();
constexpr unsigned stages_0_1_2 = 0b0111;
constexpr unsigned stage_1 = 0b0010;
constexpr unsigned stages_1_2 = 0b0110;
constexpr unsigned stages_1_3 = 0b1010;
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
constexpr Knob list_of_texts(std::string_view pointer, std::string_view fallback,
                             std::string_view choices, KnobEffect effect, std::string_view help) {
  Knob knob = list(pointer, fallback, effect, help);
  knob.of_texts = true;
  knob.choices = choices;
  return knob;
}
/// DeepSpeed looks for keys in it at once: neither null nor "auto".
constexpr Knob section(std::string_view pointer, KnobEffect effect, std::string_view help) {
  return {.pointer = pointer,
          .type = KnobType::object,
          .fallback = "{}",
          .effect = effect,
          .help = help,
          .takes_null = false,
          .takes_auto = false};
}
constexpr Knob closed(Knob knob) {
  knob.closed = true;
  return knob;
}
/// A section that DeepSpeed reads by a pydantic model.
constexpr Knob model(Knob knob) {
  knob.closed = knob.model = true;
  return knob;
}
/// A section or a model's member that may be null.
constexpr Knob optional(Knob knob) {
  knob.fallback = "null";
  knob.takes_null = true;
  return knob;
}
/// A model in a model.
constexpr Knob nested(Knob knob) {
  knob.takes_auto = true;
  return model(knob);
}
/// A member of a model that takes any object, or one that is refused as a whole.
constexpr Knob free_form(Knob knob) {
  knob.takes_auto = true;
  return knob;
}
constexpr Knob not_null(Knob knob) {
  knob.takes_null = false;
  return knob;
}
constexpr Knob not_auto(Knob knob) {
  knob.takes_auto = false;
  return knob;
}
constexpr Knob not_from_flag(Knob knob) {
  knob.takes_flag = false;
  return knob;
}
/// DeepSpeed wants 5, not 5.0.
constexpr Knob whole(Knob knob) {
  knob.takes_float = false;
  return knob;
}
/// DeepSpeed looks into each of its members.
constexpr Knob of_sections(Knob knob) {
  knob.of_sections = true;
  return knob;
}
constexpr Knob in_any_case(Knob knob) {
  knob.any_case = true;
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

/// What a row of DiskUse does.
template <auto member>
void set_disk(TrainingConfig& config, const KnobValue& value) {
  auto& target = config.disk.*member;
  target = std::get<std::remove_reference_t<decltype(target)>>(value);
}

/// The words of DeepSpeed for element types.
constexpr std::string_view element_types =
    "fp32|fp16|bf16|float32|float16|bfloat16|float|half|torch.float32|torch.float16|"
    "torch.bfloat16|int8|torch.int8";

std::span<const Knob> zero_stage();
std::span<const Knob> zero_offload();
std::span<const Knob> precision();
std::span<const Knob> optimizer();
std::span<const Knob> scheduler();
std::span<const Knob> engine();
std::span<const Knob> tools();
std::span<const Knob> features();
std::span<const Knob> data();

}  // namespace dstune::rows
