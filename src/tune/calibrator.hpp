#pragma once
/// Rank 0's part in measuring the machine: gives each shape's task to all of its groups at once, as
/// they will run beside each other later, and puts together what the members answer. Knows no MPI.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "dstune/comm/mailbox.hpp"
#include "dstune/predict/profiling_plan.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/tune/protocol.hpp"

namespace dstune {

class Calibrator {
 public:
  struct Options {
    /// A task that takes this many times its budget, and the least, is aborted.
    double patience_of_budgets = 20;
    double least_patience_s = 120;
    double rest_s = 0;                       ///< as message::Calibrate's
    double abort_grace_s = 10;               ///< for members to answer ABORT, beside that
    std::function<bool(int)> is_dead{};      ///< may be empty
    std::function<bool()> is_to_be_ended{};  ///< a signal, the time limit; may be empty
  };
  /// ranks_of_node: those that train. The mailbox outlives it.
  Calibrator(Mailbox& mailbox, std::vector<std::vector<int>> ranks_of_node, Options options);

  /// What was measured; empty where nothing was. A group that fails or is late leaves its shape to
  /// the others.
  DeviceProfile run(std::span<const ProfilingTask> tasks);
  /// What the processes that took part hold now beside their arenas, by world rank.
  [[nodiscard]] const std::map<int, std::int64_t>& outside_bytes() const { return outside_bytes_; }
  /// … and of their GPUs, where that is known.
  [[nodiscard]] const std::map<int, std::int64_t>& gpu_outside_bytes() const {
    return gpu_outside_bytes_;
  }
  /// Numbers of attempts from here on are free.
  [[nodiscard]] std::uint64_t next_attempt() const { return next_attempt_; }
  /// Whether every member has answered, if only that it left.
  [[nodiscard]] bool is_everybody_back() const { return is_everybody_back_; }

 private:
  using Clock = std::chrono::steady_clock;

  void start(const ProfilingTask& task);
  void await(double patience_s);
  void receive();
  void abort(std::uint64_t attempt);
  [[nodiscard]] bool is_lost() const;

  Mailbox& mailbox_;
  std::vector<std::vector<int>> ranks_of_node_;
  Options options_;
  std::uint64_t next_attempt_ = 1;
  std::map<std::uint64_t, std::set<int>> awaited_;  ///< members, by attempt
  std::set<std::uint64_t> left_;                    ///< attempts that a member left
  std::vector<DeviceProfile> measured_;
  std::map<int, std::int64_t> outside_bytes_, gpu_outside_bytes_;
  bool ended_ = false;
  bool is_everybody_back_ = true;
};

}  // namespace dstune
