#pragma once
/// The parts of a space: products of dimensions with their candidates and batch sizes. Members that
/// run alike are found by what they make the step do. Local.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/core/settings.hpp"
#include "dstune/space/config_findings.hpp"
#include "dstune/space/search_space.hpp"

namespace dstune {

/// One dimension: a place in the DeepSpeed config and its candidates, at least one.
struct Dimension {
  enum class Kind { knob, train_batch_size, micro_batch, accumulation_steps, shape, recompute };
  Kind kind = Kind::knob;
  /// JSON pointer in the DeepSpeed config; "" for the group's shape and recompute.
  std::string pointer;
  /// null for a batch size that is derived. Shapes are {num_gpus, num_nodes}, recompute is its
  /// word.
  std::vector<json::Value> candidates;
  std::vector<std::string> origins;            ///< JSON pointer of each candidate in the document
  std::vector<std::vector<Setting>> settings;  ///< knob: what each candidate says
};

/// Dimensions in the order in which they vary, slowest first.
struct Product {
  std::vector<Dimension> dimensions;
  json::Value base;               ///< the DeepSpeed config with each dimension's first candidate
  std::vector<Setting> settings;  ///< what `base` says
  bool is_micro_batch_searched = false;  ///< its candidates are ours, not the user's
};

/// Finds the dimensions and checks every candidate by itself: a wrong type or value, or what
/// DeepSpeed refuses in every member that has it, is the input's problem; what it refuses only in
/// some combinations, and what the step does not do, is left to the members. Findings have the
/// place of the candidate. At least one product.
std::vector<Product> expand(const JobSpec& job, ConfigFindings& findings);

/// Adds where DeepSpeed does something else than its documentation says, or than is done here.
void add_cautions(const JobSpec& job, ConfigFindings& findings);

// The three batch sizes. Each candidate is what the row of its key reads.

inline constexpr std::array<std::pair<std::string_view, Dimension::Kind>, 3> batch_keys = {
    {{"train_batch_size", Dimension::Kind::train_batch_size},
     {"train_micro_batch_size_per_gpu", Dimension::Kind::micro_batch},
     {"gradient_accumulation_steps", Dimension::Kind::accumulation_steps}}};

/// Nothing: no batch key.
[[nodiscard]] std::optional<Dimension::Kind> batch_kind(std::string_view key);

/// The dimension of a batch key; `node`: what the document says, or nothing. A micro-batch that is
/// searched has its lowest size alone. Adds problems; a candidate is there in any case.
Dimension batch_dimension(std::string_view key, const std::optional<json::Node>& node,
                          const JobSpec& job, json::Problems& problems);

/// The size of a candidate; nothing where it follows from the other sizes.
[[nodiscard]] std::optional<std::int64_t> size_of(const Dimension& dimension,
                                                  std::size_t candidate);

/// Doubles the lowest searched micro-batch up to the limits that any group and accumulation leave.
void fill_searched_micro_batches(const JobSpec& job, Product& product, json::Problems& problems);

/// At least one combination of sizes must be possible.
void check_batches(const JobSpec& job, const Product& product, json::Problems& problems);

/// Says why a global batch lies outside the limits of the `autotuning` section; empty if it does
/// not.
std::string batch_limit_reason(const TuningOptions& tuning, std::int64_t train_batch_size);

/// Reads the base and each candidate into `settings`. Wrong types and values are found at the
/// candidate's place in the document.
///
/// Then it tries each candidate with the first and the last of the other dimensions and each stage.
/// A refusal of DeepSpeed every time is one of the candidate, or of the fixed keys.
void check_candidates(const JobSpec& job, std::vector<Product>& products, ConfigFindings& findings);

/// Lists that grow from their first candidates alone to the whole of them, one candidate at a time:
/// the step at which each candidate of each dimension joins. What decides about memory joins first,
/// then micro-batches; of other numbers the ends come before the middle.
std::vector<std::vector<std::uint32_t>> depths_of(const Product& product);

// Members that run alike.

/// The configuration with every knob that does not act at its ZeRO stage at its default.
TrainingConfig effective_config(const TrainingConfig& config);

/// The digest of everything that decides what runs.
Digest fingerprint(const TrainingConfig& config, const GroupShape& shape);

/// Ranks that compute one micro-batch together: by parts of the sequence, which DeepSpeed's batch
/// sizes follow, and by parts of each tensor, which they do not.
[[nodiscard]] std::int64_t sequence_ranks(const Settings& settings);
[[nodiscard]] std::int64_t tensor_ranks(const Settings& settings);

/// Tells whether all that the dimension's candidates say is in a TrainingConfig.
[[nodiscard]] bool is_read_here(const KnobTable& table, const Dimension& dimension);

/// "reduce_bucket_size has no effect at stage 0": what differs between the members of `product`
/// with these candidates, and why it makes no difference; "" where nothing differs.
std::string twin_reason(const Product& product, const std::vector<std::size_t>& digits,
                        const std::vector<std::size_t>& others, int zero_stage);

}  // namespace dstune
