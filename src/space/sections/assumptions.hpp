#pragma once
/// The document leaves open: the precision behind "auto", and what is taken for granted.
/// Local.

#include <optional>

#include "sections/sections.hpp"

namespace dstune {

/// Hugging Face's Trainer, or Accelerate, fills in what the config leaves to it.
[[nodiscard]] bool is_of_trainer(const JobSpec& job);

/// `JobSpec::precision`: the command line's, else the document's, else the model's, and what is
/// said of it. After the model.
void decide_precision(const std::optional<Precision>& override, SectionTarget& target);

/// Whatever else is assumed of a training. `section`: `dstune`, or null.
void add_assumptions(const json::Node* section, JobSpec& job);

}  // namespace dstune
