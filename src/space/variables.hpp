#pragma once
/// "$NAME" in a document. Local.

#include "dstune/base/json.hpp"

namespace dstune {

/// The value of `root` with every $NAME replaced from `variables` (an object, or null where the
/// document has none): typed where it is the whole text, as text inside a longer one, names in any
/// case. Left alone: $NVME_PATH, and the keys nvme_path, training_command and variables. Elements
/// of a list of candidates that are lists are spliced in. Adds a problem for each unknown name.
json::Value replace_variables(const json::Node& root, const json::Node* variables,
                              json::Problems& problems);

}  // namespace dstune
