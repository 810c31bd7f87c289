#pragma once
/// The functions of a workload plug-in, loaded.

#include <string>

#include "dstune/workload.h"

namespace dstune {

struct PluginFunctions {
  decltype(&dstune_workload_build) build = nullptr;
  decltype(&dstune_workload_step) step = nullptr;
  decltype(&dstune_workload_report) report = nullptr;
  decltype(&dstune_workload_destroy) destroy = nullptr;
};

/// Of a file that has passed check_plugin_library(). Loads it once a process and never unloads it.
/// `path` has a slash in it. Throws Error where something that it needs is missing: then none of it
/// has run. Local.
const PluginFunctions& load_plugin(const std::string& path);

}  // namespace dstune
