#pragma once
/// What of a space is wrong whatever the rest says. Local.

#include <string>

#include "dstune/space/search_space.hpp"

namespace dstune {

/// Why a global batch lies outside the limits of the `autotuning` section; empty where it does not.
std::string batch_limit_reason(const TuningOptions& tuning, std::int64_t train_batch_size);

/// Tries each candidate with the first and the last of the other dimensions and each stage: a
/// problem that is there every time belongs to the candidate (or to what is fixed) and is added,
/// with its place in the document. Knobs that are not built are refused as dimensions.
void check_candidates(const JobSpec& job, const Expansion& expansion, json::Problems& problems);

}  // namespace dstune
