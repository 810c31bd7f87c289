#pragma once
/// What rank 0 tells every rank before the first experiment, and how it travels. Local.

#include <cstdint>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/core/job.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {

struct JobInput {
  /// Not ok: nothing runs, everyone leaves with this code (rank 0 has said why).
  int exit_code = 0;
  bool run = false;
  ModelSpec model;
  WorkloadSpec workload;
  MeasureOptions measure;
  std::int64_t device_memory_bytes = 0;
  std::int64_t host_memory_bytes = 0;
  std::vector<std::vector<int>> groups;  ///< those to be made at start-up
};

Bytes encode(const JobInput& input);
JobInput decode_job_input(const Bytes& bytes);

}  // namespace dstune
