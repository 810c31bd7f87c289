#pragma once
/// --import: what verification jobs left, by member of the space. Local.

#include <string>
#include <vector>

#include "dstune/space/deepspeed_run.hpp"
#include "preparation.hpp"

namespace dstune {

/// Warns of results that belong to no member of the space. Throws InputError: what can not be read,
/// and where none belongs to one.
std::vector<Import> read_imports(const std::string& dir, const JobSpec& job,
                                 const PlannedSpace& space);

/// --calibrate: the user's own runs.
std::vector<DeepSpeedRun> read_own_runs(const std::vector<std::string>& paths, const JobSpec& job);
/// How much more memory they took than is planned for the training: the mean over those that say
/// it, without what only a GPU's driver and allocator know of; 0 where none does.
std::int64_t memory_offset(const std::vector<DeepSpeedRun>& runs, const JobSpec& job);
/// By member of the space. Throws InputError for a run of another configuration.
std::vector<OwnRun> match_own_runs(const std::vector<DeepSpeedRun>& runs,
                                   const PlannedSpace& space);

}  // namespace dstune
