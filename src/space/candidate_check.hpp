#pragma once
/// What of a space is wrong whatever the rest says. Local.

#include "dstune/space/search_space.hpp"

namespace dstune {

/// Reads what the base and each candidate say into `settings`; wrong types and values are problems,
/// at the candidate's place in the document. Then tries each candidate with the first and the last
/// of the other dimensions and each stage: what DeepSpeed refuses every time is a problem of the
/// candidate, or of what is fixed. What the step does not do is one only where nothing else is left
/// of the dimension. Adds each problem once.
void check_candidates(const JobSpec& job, std::vector<Product>& products, json::Problems& problems);

/// What the step does not do of a candidate, in every member that was tried; empty: nothing.
std::string unbuilt_reason(const Product& product, const Dimension& dimension, std::size_t index);

}  // namespace dstune
