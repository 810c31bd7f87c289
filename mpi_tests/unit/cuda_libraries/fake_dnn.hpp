#pragma once
/// cuDNN's graph interface on a processor: it keeps what it is told, reads it as the library's
/// manual says, and does in double what a graph describes. What the library would not accept is a
/// fault.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "libraries/libraries.hpp"

namespace dstune::kernels::test {

struct FakeDnn {
  FakeDnn();  ///< what the functions act on from now on
  ~FakeDnn();
  FakeDnn(const FakeDnn&) = delete;
  FakeDnn& operator=(const FakeDnn&) = delete;
  static const cuda::DnnLibrary& functions();

  std::size_t version = 91900;
  int configurations = 1;          ///< that it recommends
  std::set<int> failing;           ///< of these it can make no plan
  std::int64_t further_bytes = 0;  ///< of a plan's workspace, beyond what was seen
  bool fails_to_execute = false;
  bool failing_allocations = false;   ///< of the device's memory, for plans
  std::set<int> failing_runs;         ///< configurations that make a plan, which fails
  int failing_call = -1;              ///< the number of a call that fails, whichever it is
  std::string fault;                  ///< the first
  bool takes_default_stream = false;  ///< or finds that a stream was forgotten
  /// Has a plan done at its time; at first: at once.
  std::function<void(cudaStream_t, std::function<void()>)> enqueue =
      [](cudaStream_t, const std::function<void()>& plan) { plan(); };

  int calls = 0;
  int plans = 0;
  int executions = 0;
  std::vector<int> runs;  ///< the configuration of each
  bool adds_up = false;   ///< the last of them had the gradient of the queries in fp32, too
  std::int64_t statistics_alignment = 0;  ///< of what the last of them has in fp32 for each row
  int alive = 0;                          ///< things made and not destroyed
};

}  // namespace dstune::kernels::test
