#pragma once
/// What dimensions are made from: batch sizes, lists of candidates in a DeepSpeed config, and what
/// `fast: false` adds to the document. Local.

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "dstune/space/search_space.hpp"

namespace dstune {

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
                          const TuningOptions& tuning, json::Problems& problems);

/// The size of a candidate; nothing where it follows from the other sizes.
[[nodiscard]] std::optional<std::int64_t> size_of(const Dimension& dimension,
                                                  std::size_t candidate);

/// Doubles the lowest searched micro-batch up to the limits that any group and accumulation leave.
void fill_searched_micro_batches(const JobSpec& job, Product& product, json::Problems& problems);

/// At least one combination of sizes must be possible.
void check_batches(const JobSpec& job, const Product& product, json::Problems& problems);

/// Why a global batch lies outside the limits of the `autotuning` section; empty where it does not.
std::string batch_limit_reason(const TuningOptions& tuning, std::int64_t train_batch_size);

// Lists of candidates: what they stand for, and what of them is wrong whatever the rest says.

/// A list that is a set of candidates, given what the table says about its place.
bool is_candidate_list(const json::Node& node);

/// An object with lists of candidates inside as the objects that it stands for, the last key
/// fastest; any other value as itself. `knob_pointer`: its place in a DeepSpeed config.
std::vector<json::Value> product_of(const json::Node& node, const std::string& knob_pointer);

/// Reads what the base and each candidate say into `settings`; wrong types and values are problems,
/// at the candidate's place in the document. Then tries each candidate with the first and the last
/// of the other dimensions and each stage: what DeepSpeed refuses every time is a problem of the
/// candidate, or of what is fixed. What the step does not do is one only where nothing else is left
/// of the dimension. Adds each problem once.
void check_candidates(const JobSpec& job, std::vector<Product>& products, json::Problems& problems);

/// What the step does not do of a candidate, in every member that was tried; empty: nothing.
std::string unbuilt_reason(const Product& product, const Dimension& dimension, std::size_t index);

// DeepSpeed's templates and default grids of the ZeRO stages (docs/space.md).

/// The `zero_optimization` section of a stage: the template (the job's own file where it names
/// one), over it the stage's default lists, over both what the document says in `written`, whose
/// stage is replaced. Bucket sizes of stage 3 follow from the model's hidden size, rounded. Adds
/// problems.
json::Value full_zero_section(const JobSpec& job, int stage, const json::Value& written,
                              json::Problems& problems);

}  // namespace dstune
