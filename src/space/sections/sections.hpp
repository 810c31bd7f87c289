#pragma once
/// The two sections of space.json that are not DeepSpeed's, `autotuning` and `dstune`: tables of
/// keys, and what their values stand for. Each function reads what is there, leaves the rest at its
/// default and adds a problem for everything that it can not take. Local.

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/key_words.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// What the rows fill. Values that are decided only beside others keep their place.
struct SectionTarget {
  JobSpec* job;
  json::Problems* problems;
  std::optional<json::Node> model;
  std::optional<Reading> sequence_length;
  std::vector<Reading> num_gpus, num_nodes;
  std::optional<Precision> model_precision;    ///< of the model's config.json
  std::optional<Precision> command_precision;  ///< of the training command's flags
};

/// A key of ours: null stands for what is absent, "auto" for nothing; texts are not empty, and
/// words are in any case of letters.
struct SectionRow : Key {
  /// Called once the value, and everything below it, is valid: with one value, or with all of a
  /// list where the row is listable.
  using Apply = void (*)(SectionTarget&, const std::vector<Reading>&);

  // NOLINTNEXTLINE(google-explicit-constructor): some rows do nothing.
  constexpr SectionRow(const Key& key, Apply does = nullptr) : Key(key), apply(does) {
    takes_auto = takes_empty = false;
    any_case = !choices.empty();
  }

  Apply apply = nullptr;
};

/// All rows of a section, sections before their members.
[[nodiscard]] std::span<const SectionRow> autotuning_rows();
[[nodiscard]] std::span<const SectionRow> dstune_rows();

namespace rows {

constexpr double largest_int = std::numeric_limits<int>::max();

constexpr SectionRow applied(SectionRow::Apply apply, SectionRow row) {
  row.apply = apply;
  return row;
}
/// An object without further keys, and one whose keys are the user's.
constexpr Key object(std::string_view pointer, std::string_view help) {
  return closed(optional(section(pointer, inert, help)));
}
constexpr Key map(std::string_view pointer, std::string_view help) {
  return optional(section(pointer, inert, help));
}
constexpr Key any_text(std::string_view pointer, std::string_view help) {
  return text(pointer, "null", "", inert, help);
}
constexpr Key word(std::string_view pointer, std::string_view choices, std::string_view help) {
  return text(pointer, "null", choices, inert, help);
}
constexpr SectionRow within(double low, double high, const SectionRow& row) {
  return from(low, up_to(high, row));
}

/// A row whose type and default are those of a member of the job, at the end of a path; `apply`
/// sets it.
template <auto... path>
SectionRow sets(std::string_view pointer, SectionRow::Apply apply, std::string_view help) {
  return {{.pointer = pointer,
           .type = type_of<JobSpec, path...>(),
           .fallback = default_of<JobSpec, path...>(),
           .help = help},
          apply};
}
/// The value becomes the member's as it is.
template <auto... path>
SectionRow sets(std::string_view pointer, std::string_view help) {
  return sets<path...>(
      pointer,
      [](SectionTarget& target, const std::vector<Reading>& readings) {
        assign<JobSpec, path...>(*target.job, readings.front().value);
      },
      help);
}

}  // namespace rows

/// The member, unless it is absent or null.
[[nodiscard]] std::optional<json::Node> given(const json::Node& section, const std::string& key);

/// `path` as it is seen from the document's folder.
std::string path_from(const std::string& folder, const std::string& path);

/// The `autotuning` section. A tuner that the job names already is the command line's: the
/// section's then need not be built.
void read_autotuning(const json::Node& section, SectionTarget& target);

/// The `dstune` section; what depends on the machine or on the model is left in the target.
void read_dstune(const json::Node& section, SectionTarget& target);

/// Adds what was wrong with a file.
void add_all(const InputError& error, json::Problems& problems);

// "$NAME" in a document.

/// The value of `root` with every $NAME replaced from `variables` (an object, or null where the
/// document has none): typed where it is the whole text, as text inside a longer one, names in any
/// case. Left alone: $NVME_PATH, and the keys nvme_path, training_command and variables. Elements
/// of a list of candidates that are lists are spliced in. Adds a problem for each unknown name.
json::Value replace_variables(const json::Node& root, const json::Node* variables,
                              json::Problems& problems);

}  // namespace dstune
