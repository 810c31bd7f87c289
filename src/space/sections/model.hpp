#pragma once
/// The model of the job. Local.

#include "sections/sections.hpp"

namespace dstune {

/// `JobSpec::model`: the command line's, else that of `dstune.model`, which may be a preset, a
/// file of Hugging Face's, or written out. `section`: `dstune`, or null.
void decide_model(const Overrides& overrides, const json::Node& root, const json::Node* section,
                  SectionTarget& target);

}  // namespace dstune
