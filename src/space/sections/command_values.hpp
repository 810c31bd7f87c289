#pragma once
/// Takes over what the training command says of the training where neither `dstune` nor the
/// DeepSpeed config says it. Local.

#include "sections/sections.hpp"

namespace dstune {

/// Reads `dstune.training_command` and fills in what it says: `JobSpec::command`, accumulation in
/// `JobSpec::ds_config`, precision, sequence length, recompute, numbers, today's batch. Adds what
/// the user is told to `JobSpec::from_command`. `section`: `dstune`, or null. After the groups'
/// shapes, before the model's precision is asked for.
void take_from_command(const json::Node* section, SectionTarget& target);

/// Writes today's global batch into `JobSpec::ds_config` where it is to be kept, with accumulation
/// that follows from it. Adds a problem where nobody says what it is.
void keep_global_batch(const json::Node* section, SectionTarget& target);

/// The files that a command names, seen from the job's folder. One that can not be read is a
/// warning of the job.
[[nodiscard]] CommandFiles files_of(JobSpec& job);

}  // namespace dstune
