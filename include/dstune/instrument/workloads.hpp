#pragma once
/// The workloads of instruments, and the library of a plug-in. The contexts' members outlive the
/// workloads.

#include <memory>
#include <string>

#include "dstune/base/error.hpp"
#include "dstune/space/workload_spec.hpp"
#include "dstune/train/workload.hpp"
#include "dstune/workload.h"

namespace dstune {

/// The training step of a transformer, as planned. Local.
[[nodiscard]] std::unique_ptr<Workload> make_own_step(const WorkloadContext& context);
/// Step times that are given, by a synthetic or a replay workload. The spec outlives it. Local.
[[nodiscard]] std::unique_ptr<Workload> make_given_steps(const WorkloadSpec& spec,
                                                         const WorkloadContext& context);
/// A workload of the user's own, from a shared library. The spec outlives it. Throws Error where
/// that can not be loaded. Local.
[[nodiscard]] std::unique_ptr<Workload> make_plugin_workload(const WorkloadSpec& spec,
                                                             const WorkloadContext& context);

/// The functions of a workload plug-in, loaded.
struct PluginFunctions {
  decltype(&dstune_workload_build) build = nullptr;
  decltype(&dstune_workload_step) step = nullptr;
  decltype(&dstune_workload_report) report = nullptr;
  decltype(&dstune_workload_destroy) destroy = nullptr;
};

struct PluginLoading {
  bool on_own_thread = false;  ///< WorkloadContext::may_use_threads
  double timeout_s = 600;      ///< for its constructors, on a thread of its own
};
/// The process can not be ended in the ordinary way: the loader's lock is taken.
class ConstructorHangs : public Error {
 public:
  using Error::Error;
};
/// Loads the plug-in of a file that has passed check_plugin_library(). Loads it once a process and
/// never unloads it. `path` has a slash in it. Throws Error where something that it needs is
/// missing: then none of it has run; or where a constructor closes descriptors. Throws
/// ConstructorHangs. Local.
const PluginFunctions& load_plugin(const std::string& path, const PluginLoading& loading = {});

}  // namespace dstune
