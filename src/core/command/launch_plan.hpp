#pragma once
/// The changes of a command's launcher so that it starts the ranks of a group. Local.

#include <optional>
#include <string>
#include <vector>

#include "command/accelerate_file.hpp"
#include "command/launcher.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/launch_line.hpp"

namespace dstune {

struct LaunchRequest {
  GroupShape shape;
  std::string folder;                     ///< where the command runs
  std::string config_path;                ///< DeepSpeed's configuration, …
  const json::Value* config = nullptr;    ///< … and what it says
  bool is_placed = true;                  ///< the script has it; else accelerate is to have it
  std::optional<std::string> hostfile{};  ///< for DeepSpeed's launcher that names none
};

struct LaunchPlan {
  WordEdits edits;
  std::string problem;       ///< why the command can not be told; the edits are none then
  bool is_of_counts = true;  ///< the problem is none where the command has the counts already
};

LaunchPlan plan_launch(const std::vector<std::string>& words, const LaunchRequest& request);
LaunchCounts counts_of(const std::vector<std::string>& words, const std::string& folder);

// The parts of both, a launcher each. Problems are returned, and empty where there is none.

/// The starter's tasks: so many nodes with as many on each.
std::string plan_starter(const LauncherChain& chain, int num_nodes, int tasks_per_node,
                         WordEdits& edits);
LaunchCounts starter_counts(const LauncherChain& chain);
std::string plan_deepspeed(const LauncherChain& chain, const LaunchRequest& request,
                           WordEdits& edits);
LaunchCounts deepspeed_counts(const LauncherChain& chain);
void plan_accelerate(const LauncherChain& chain, const LaunchRequest& request, LaunchPlan& plan);
LaunchCounts accelerate_counts(const LauncherChain& chain, const std::string& folder);

/// "--num_gpus is $GPUS, which the shell knows alone; write a number". Empty where no variable is
/// the value of one of these options.
std::string variable_problem(const GivenOptions& options,
                             const std::vector<std::string_view>& names);

}  // namespace dstune
