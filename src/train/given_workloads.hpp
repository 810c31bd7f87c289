#pragma once
/// Workloads without training: steps whose times are given.

#include <chrono>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/train/workload.hpp"

namespace dstune::train {

/// A recorded experiment that did not end well: becomes the measurement's status.
class RecordedStatus : public Error {
 public:
  RecordedStatus(Status status, const std::string& reason) : Error(reason), status_(status) {}
  [[nodiscard]] Status status() const { return status_; }

 private:
  Status status_;
};

/// A series of step times that starts anew when it is exhausted.
class GivenTimes : public Workload {
 public:
  void initialize() override {}
  StepSample step(std::int64_t step) override;
  [[nodiscard]] double flops_per_step() const override { return flops_per_step_; }
  [[nodiscard]] bool has_given_times() const override { return true; }
  [[nodiscard]] bool talks_to_peers() const override { return false; }

 protected:
  /// A step waits `time_scale` times as long as it is said to take.
  GivenTimes(const WorkloadContext& context, double time_scale);
  std::vector<double> step_times_s_;

 private:
  void wait(double wait_s) const;

  double flops_per_step_;
  double time_scale_;
  const Waiter* waiter_;
};

class SyntheticWorkload : public GivenTimes {
 public:
  explicit SyntheticWorkload(const WorkloadContext& context);
  void build() override {}
  [[nodiscard]] PeakMemory peak_memory() const override;
};

/// One experiment of a recorded table.
class ReplayWorkload : public GivenTimes {
 public:
  explicit ReplayWorkload(const WorkloadContext& context);
  /// Throws RecordedStatus, and Error for a name or a row that is not as it should be.
  void build() override;
  [[nodiscard]] PeakMemory peak_memory() const override;

 private:
  const WorkloadSpec& spec_;
  const std::string& name_;
  std::int64_t peak_memory_bytes_ = 0;
};

}  // namespace dstune::train
