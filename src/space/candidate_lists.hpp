#pragma once
/// Which lists of a DeepSpeed config are candidates, and what they stand for. Local.

#include <string>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune {

/// A list that is a set of candidates, given what the table says about its place.
bool is_candidate_list(const json::Node& node);

/// An object with lists of candidates inside as the objects that it stands for, the last key
/// fastest; any other value as itself. `knob_pointer`: its place in a DeepSpeed config.
std::vector<json::Value> product_of(const json::Node& node, const std::string& knob_pointer);

}  // namespace dstune
