#pragma once
/// The two sections of space.json that are not DeepSpeed's. Each function reads what is there,
/// leaves the rest at its default and adds a problem for everything that it can not take. Local.

#include <string>
#include <vector>

#include "sections/section_table.hpp"

namespace dstune {

/// `path` as it is seen from the document's folder.
std::string path_from(const std::string& folder, const std::string& path);

/// The `autotuning` section. A tuner that the job names already is the command line's: the
/// section's then need not be built.
void read_autotuning(const json::Node& section, SectionTarget& target);

/// The `dstune` section; what depends on the machine or on the model is left in the target.
void read_dstune(const json::Node& section, SectionTarget& target);

/// The group shapes of `resources`, or every rank of the machine.
void decide_shapes(const json::Node* resources, int default_ranks, SectionTarget& target);

/// The file of a replay's `table`, checked row by row.
void read_replay_table(const std::string& path, WorkloadSpec& workload, json::Problems& problems);

/// The library of a plug-in: its file is looked at, and nothing of it runs.
void set_plugin_library(const json::Node& node, const std::string& path, WorkloadSpec& workload,
                        json::Problems& problems);

/// The model that the command line (a file's or preset's name) or `dstune.model` names; nothing
/// where neither does or where it can not be read.
std::optional<ModelSpec> find_model(const std::optional<std::string>& override_name,
                                    const std::optional<json::Node>& node,
                                    const std::string& folder, json::Problems& problems);

}  // namespace dstune
