#pragma once
/// The parts of the table of knobs, and the words that only its rows are written in.

#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/key_words.hpp"
#include "dstune/core/settings.hpp"

namespace dstune::rows {

constexpr unsigned stages_0_1_2 = 0b0111;
constexpr unsigned stage_1 = 0b0010;
constexpr unsigned stages_1_2 = 0b0110;
constexpr unsigned stages_0_1_3 = 0b1011;
constexpr unsigned stages_1_3 = 0b1010;
constexpr unsigned stages_1_2_3 = 0b1110;
constexpr unsigned stage_2 = 0b0100;
constexpr unsigned stage_3 = 0b1000;

// Releases in which something changed.
constexpr Version v0_15_4{0, 15, 4}, v0_16_9{0, 16, 9}, v0_17_6{0, 17, 6}, v0_18_9{0, 18, 9},
    v0_19_6{0, 19, 6}, v0_19_7{0, 19, 7}, v0_19_8{0, 19, 8};

/// A text that lives as long as the program.
[[nodiscard]] std::string_view kept(std::string text);

/// The rows of several tables in succession.
template <class... Tables>
[[nodiscard]] std::vector<Knob> joined(const Tables&... tables) {
  std::vector<Knob> all;
  (all.insert(all.end(), tables.begin(), tables.end()), ...);
  return all;
}

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

/// Of how a disk is used.
template <auto member>
Knob sets_disk(std::string_view pointer, std::string_view help) {
  return at(stage_3, sets<&TrainingConfig::disk, member>(pointer, help));
}

constexpr Knob acting(Knob knob, Knob::Apply apply) {
  knob.apply = apply;
  return knob;
}
/// An integer of any size without an effect.
constexpr Key any_integer(std::string_view pointer, std::string_view fallback,
                          std::string_view help) {
  return integer(pointer, fallback, -unbounded, inert, help);
}

// The parts. A pointer without '/' at its front is that of a member of the section above which has
// one.

/// Precision, optimizer and all else of a step.
[[nodiscard]] std::vector<Knob> training();
[[nodiscard]] std::vector<Knob> zero();
[[nodiscard]] std::vector<Knob> beside_training();

}  // namespace dstune::rows
