#pragma once
/// The three batch sizes as dimensions. Local.

#include "dstune/space/search_space.hpp"

namespace dstune {

inline constexpr std::int64_t largest_batch_size = 1 << 24;

bool is_batch_key(const std::string& key);

/// The dimension of a batch key; `node`: what the document says, or nothing. A micro-batch that is
/// searched has its lowest size alone. Adds problems; a candidate is there in any case.
Dimension batch_dimension(const std::string& key, const std::optional<json::Node>& node,
                          const TuningOptions& tuning, json::Problems& problems);

/// Doubles the lowest searched micro-batch up to the limits that any group and accumulation leave.
void fill_searched_micro_batches(const JobSpec& job, Product& product, json::Problems& problems);

/// At least one combination of sizes must be possible.
void check_batches(const JobSpec& job, const Product& product, json::Problems& problems);

/// Why a global batch lies outside the limits of the `autotuning` section; empty where it does not.
std::string batch_limit_reason(const TuningOptions& tuning, std::int64_t train_batch_size);

/// A candidate of a batch dimension.
std::optional<std::int64_t> batch_size_of(const json::Value& candidate);

}  // namespace dstune
