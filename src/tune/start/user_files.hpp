#pragma once
/// What users bring beside space.json: results of verification jobs, their own runs in DeepSpeed,
/// and a plug-in library.

#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/core/job.hpp"
#include "dstune/space/deepspeed_run.hpp"
#include "start/preparation.hpp"

namespace dstune {

/// --import: what verification jobs left, by member of the space. Local.
/// Warns of results that belong to no member of the space. Throws InputError: what can not be read,
/// and where none belongs to one.
std::vector<Import> read_imports(const std::string& dir, const JobSpec& job,
                                 const PlannedSpace& space);

/// --calibrate: the user's own runs.
std::vector<DeepSpeedRun> read_user_runs(const std::vector<std::string>& paths, const JobSpec& job);
/// How much more memory they took than is planned for the training: the mean over those that say
/// it, without what only a GPU's driver and allocator know of; 0 where none does.
std::int64_t memory_offset(const std::vector<DeepSpeedRun>& runs, const JobSpec& job);
/// By member of the space. Throws InputError for a run of another configuration.
std::vector<UserRun> match_user_runs(const std::vector<DeepSpeedRun>& runs,
                                     const PlannedSpace& space);

/// A plug-in library by its content. Throws Error. Local.
std::string plugin_hash(const WorkloadSpec& workload);

/// Loads the library on every rank once its file has passed the check on all of them and is the one
/// that rank 0 has seen; other workloads have none. Returns what is in the way, the lowest rank's
/// words, or nothing; the same on every rank. Collective over the world.
std::string load_plugin_everywhere(const Communicator& world, const WorkloadSpec& workload);

/// The place in space.json that names the library. Local.
Problem plugin_problem(const json::Document& document, const std::string& violation);

}  // namespace dstune
