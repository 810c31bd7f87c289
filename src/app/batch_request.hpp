#pragma once
/// The command line of `dstune-mpi batch`. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/report/batch_script.hpp"
#include "option_values.hpp"

namespace dstune {

struct BatchRequest {
  BatchSystem system = BatchSystem::slurm;
  std::optional<int> nodes, gpus_per_node, tasks_per_node;
  int cpus_per_task = 4;
  int max_restarts = 0;
  double time_limit_s = 0;
  std::optional<double> tune_time_s;  ///< it trains behind that
  std::optional<std::string> job_name;
  std::string account, queue, launch;
  std::vector<std::string> directives, modules;
  std::vector<std::string> job_words;  ///< options of the job; files by absolute paths
};

/// `system`: the word behind `batch`. Throws UsageError.
BatchRequest batch_request(const std::string& system, const OptionValues& given);

}  // namespace dstune
