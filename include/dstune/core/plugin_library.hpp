#pragma once
/// The check of a workload plug-in's file (dstune/workload.h) before anything of it runs.

#include <string>

namespace dstune {

/// The file's content. Throws Error where it is no shared library for this machine, lacks a symbol,
/// or was built for another version: what is wrong and how to fix it, in one sentence. Local.
std::string check_plugin_library(const std::string& path);

}  // namespace dstune
