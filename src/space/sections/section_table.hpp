#pragma once
/// The tables of the sections `autotuning` and `dstune`: one row a key, in the shape of the table
/// of knobs, from which reading, refusals, the schema and the reference follow. Local.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dstune/core/knob_value.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// A value with its place. Words are spelled as their row spells them.
struct Reading {
  json::Node node;
  KnobValue value;
};

/// What the rows fill. Values that are decided only beside others keep their place.
struct SectionTarget {
  JobSpec* job;
  json::Problems* problems;
  std::optional<json::Node> model;
  std::optional<Reading> sequence_length;
  std::vector<Reading> num_gpus, num_nodes;
};

/// A key. Two rows in succession with one pointer are two forms of its value. A pointer that ends
/// in
/// "/*" is every member of an object whose keys are the user's.
struct SectionRow {
  Knob key;  ///< its pointer is the document's; stages and `apply` are not used
  /// Called once the value, and everything below it, is valid: with one value, or with all of a
  /// list where `is_listable`.
  void (*apply)(SectionTarget&, const std::vector<Reading>&) = nullptr;
  bool is_listable = false;      ///< a list of such values is candidates
  bool is_required = false;      ///< its section can not do without it
  bool is_alone = false;         ///< nothing stands beside it in its section
  std::string_view only_with{};  ///< "type=replay": the word of a key beside it that it belongs to
  std::string_view open_with{};  ///< object: "type=plugin": with this word further keys are the
                                 ///< user's, and none belongs to another word
  std::string_view pattern{};    ///< text (object: its keys): what `apply` takes, as a regular
                                 ///< expression for the schema
};

/// All rows of both sections, sections before their members.
[[nodiscard]] std::span<const SectionRow> autotuning_rows();
[[nodiscard]] std::span<const SectionRow> dstune_rows();

/// Reads the section at `node` ("/autotuning" or "/dstune") by its rows. A key that is null is
/// absent.
void read_section(const json::Node& node, std::span<const SectionRow> rows, SectionTarget& target);

/// Whether `row` stands right below the section at `pointer`.
[[nodiscard]] bool is_below(const SectionRow& row, std::string_view pointer);
[[nodiscard]] std::string_view last_key(const SectionRow& row);
/// The key and the word of `only_with` or `open_with`; empty where there is none.
struct Companion {
  std::string_view key, word;
};
[[nodiscard]] Companion companion_in(std::string_view text);

// The words that rows are written in.

constexpr double no_limit = std::numeric_limits<double>::infinity();
constexpr double largest_int = std::numeric_limits<int>::max();

constexpr SectionRow flag_row(std::string_view pointer, std::string_view fallback,
                              std::string_view help) {
  return {
      .key = {.pointer = pointer, .type = KnobType::boolean, .fallback = fallback, .help = help}};
}
constexpr SectionRow integer_row(std::string_view pointer, std::string_view fallback, double low,
                                 double high, std::string_view help) {
  return {.key = {.pointer = pointer,
                  .type = KnobType::integer,
                  .fallback = fallback,
                  .low = low,
                  .high = high,
                  .help = help}};
}
constexpr SectionRow number_row(std::string_view pointer, std::string_view fallback, double low,
                                double high, std::string_view help) {
  return {.key = {.pointer = pointer,
                  .type = KnobType::number,
                  .fallback = fallback,
                  .low = low,
                  .high = high,
                  .help = help}};
}
/// Any text that is not empty.
constexpr SectionRow text_row(std::string_view pointer, std::string_view fallback,
                              std::string_view help) {
  return {.key = {.pointer = pointer, .type = KnobType::text, .fallback = fallback, .help = help}};
}
constexpr SectionRow word_row(std::string_view pointer, std::string_view fallback,
                              std::string_view choices, std::string_view help) {
  return {.key = {.pointer = pointer,
                  .type = KnobType::text,
                  .fallback = fallback,
                  .help = help,
                  .choices = choices,
                  .any_case = true}};
}
/// An object without further keys.
constexpr SectionRow object_row(std::string_view pointer, std::string_view help) {
  return {.key = {.pointer = pointer,
                  .type = KnobType::object,
                  .fallback = "null",
                  .help = help,
                  .closed = true}};
}
/// An object whose keys are the user's.
constexpr SectionRow map_row(std::string_view pointer, std::string_view help) {
  return {.key = {.pointer = pointer, .type = KnobType::object, .fallback = "null", .help = help}};
}
constexpr SectionRow applied(void (*apply)(SectionTarget&, const std::vector<Reading>&),
                             SectionRow row) {
  row.apply = apply;
  return row;
}
constexpr SectionRow listable(SectionRow row) {
  row.is_listable = true;
  return row;
}
constexpr SectionRow required(SectionRow row) {
  row.is_required = true;
  return row;
}
constexpr SectionRow alone(SectionRow row) {
  row.is_alone = true;
  return row;
}
constexpr SectionRow only_with(std::string_view companion, SectionRow row) {
  row.only_with = companion;
  return row;
}
constexpr SectionRow open_with(std::string_view companion, SectionRow row) {
  row.open_with = companion;
  return row;
}
constexpr SectionRow matching(std::string_view pattern, SectionRow row) {
  row.pattern = pattern;
  return row;
}

}  // namespace dstune
