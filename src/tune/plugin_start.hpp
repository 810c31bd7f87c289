#pragma once
/// A workload plug-in before the first experiment: the same file on every rank, loaded on all of
/// them or refused.

#include <string>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/core/job.hpp"

namespace dstune {

/// Of the library's content. Throws Error. Local.
std::string plugin_hash(const WorkloadSpec& workload);

/// Loads the library on every rank once its file has passed the check on all of them and is the one
/// that rank 0 has seen; other workloads have none. Returns what is in the way, the lowest rank's
/// words, or nothing; the same on every rank. Collective over the world.
std::string load_plugin_everywhere(const Communicator& world, const WorkloadSpec& workload);

/// The place in space.json that names the library. Local.
Problem plugin_problem(const json::Document& document, const std::string& objection);

}  // namespace dstune
