#pragma once
/// What every way of describing a model has in common: a name from its size, and shapes that fit.

#include <cstdint>
#include <string>

#include "dstune/model/model_spec.hpp"

namespace dstune::model {

/// "gpt2-124M"
[[nodiscard]] std::string sized_name(const ModelSpec& spec);
/// Whether key and value heads may be fewer than heads.
[[nodiscard]] bool has_key_heads(ModelFamily family);
/// Adds a problem at `node` where heads do not fit each other or the family.
void check_shape(const ModelSpec& spec, const json::Node& node, json::Problems& problems);
/// hidden_size / num_heads; a problem where it has a remainder.
std::int64_t head_size_of(std::int64_t hidden_size, std::int64_t num_heads, const json::Node& node,
                          json::Problems& problems);

/// Largest size of any dimension: products of four of them stay far from overflow.
inline constexpr std::int64_t largest_size = 1'000'000;

}  // namespace dstune::model
