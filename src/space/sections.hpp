#pragma once
/// The two sections of space.json that are not DeepSpeed's. Each function reads what is there,
/// leaves the rest at its default and adds a problem for everything that it can not take. Local.

#include <string>
#include <vector>

#include "dstune/space/job_spec.hpp"

namespace dstune {

/// `path` as it is seen from the document's folder.
std::string path_from(const std::string& folder, const std::string& path);

/// The `autotuning` section; `fast: false` is refused until the default grids are built. A tuner
/// that `options` name already is the command line's: the section's then need not be built.
void read_autotuning(const json::Node& section, const std::string& folder, TuningOptions& options,
                     json::Problems& problems);

/// The `dstune` section but for its model, resources and variables.
void read_dstune(const json::Node& section, JobSpec& job, json::Problems& problems);

/// `resources`, or every rank of the machine, as group shapes.
void read_resources(const json::Node* section, const std::optional<Machine>& machine,
                    int default_ranks, JobSpec& job, json::Problems& problems);

/// The workload, with the table of a replayed one.
WorkloadSpec read_workload(const json::Node& node, const std::string& folder,
                           json::Problems& problems);

/// The model that the command line or the document names; nothing where neither does or where it
/// can not be read.
std::optional<ModelSpec> find_model(const std::optional<std::string>& override_name,
                                    const json::Node* section, const std::string& folder,
                                    json::Problems& problems);

}  // namespace dstune
