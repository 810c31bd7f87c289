#pragma once
/// The two sections of space.json that are not DeepSpeed's, `autotuning` and `dstune`: tables of
/// keys, and what their values stand for. Each function reads what is there, leaves the rest at its
/// default and adds a problem for everything that it can not take. Local.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dstune/core/keys.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// The names of the sections.
inline constexpr std::array<const char*, 2> our_sections{"autotuning", "dstune"};

/// The rows fill this. Values that are decided only beside others keep their place.
struct SectionTarget {
  JobSpec* job;
  json::Problems* problems;
  json::Problems* unbuilt = problems;  ///< what DeepSpeed takes and dstune-mpi does not do
  std::optional<json::Node> model{};
  std::optional<Reading> sequence_length{};
  std::vector<Reading> num_gpus{}, num_nodes{};
  /// DeepSpeed's engine, by `dstune.verify` or --verify, and where it only measures.
  std::optional<WorkloadSpec> verify{}, measuring{};
  std::optional<Precision> model_precision{};    ///< of the model's config.json
  std::optional<Precision> command_precision{};  ///< of the training command's flags
};

/// A key of ours: null stands for what is absent, "auto" for nothing; texts are not empty, and
/// words are in any case of letters.
struct SectionRow : Key {
  /// Called once the value, and everything below it, is valid: with one value, or with all of a
  /// list where the row is listable.
  using Apply = void (*)(SectionTarget&, const std::vector<Reading>&);

  Apply apply = nullptr;  ///< some rows do nothing
};

/// All rows of a section, sections before their members.
[[nodiscard]] std::span<const SectionRow> autotuning_rows();
[[nodiscard]] std::span<const SectionRow> dstune_rows();

/// Setters by pointer; that of a form which is an object has a '/' at its end.
using SectionSetters = std::unordered_map<std::string_view, SectionRow::Apply>;
/// The rows of a table of keys.json with what their values do.
[[nodiscard]] std::vector<SectionRow> section_rows(const std::string& table,
                                                   const SectionSetters& setters);

/// The member at the end of a path: member_of<&A::b, &B::c>(a) is a.b.c.
template <auto first, auto... rest, class Structure>
auto& member_of(Structure& structure) {
  if constexpr (sizeof...(rest) == 0)
    return structure.*first;
  else
    return member_of<rest...>(structure.*first);
}
/// The value becomes the job's member at the end of a path.
template <auto... path>
void set(SectionTarget& target, const std::vector<Reading>& readings) {
  assign(member_of<path...>(*target.job), readings.front().value);
}

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
/// The same with the document's own `dstune.variables`.
json::Value replace_own_variables(const json::Node& root, json::Problems& problems);

}  // namespace dstune
