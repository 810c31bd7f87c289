#pragma once
/// The holder of a results folder, as the file `lock` says. Local.

#include <string>

#include "dstune/base/json.hpp"

namespace dstune {

/// A process, and what tells it from a later one with the same number. All of it is empty where the
/// system does not say it.
struct LockHolder {
  std::string host;
  int process_id = 0;
  std::string boot;           ///< of the host, since when process numbers count
  std::string pid_namespace;  ///< containers of one host may number alike
  std::string started;        ///< clock ticks since the boot
  std::string batch_job;      ///< "SLURM_JOB_ID=123"; empty outside of a batch job
  std::string since;          ///< when it took the lock, by its clock

  /// Everything is empty for text that is no lock's.
  static LockHolder parse(const std::string& text);
  [[nodiscard]] std::string text() const;
  /// "host n12, process 4711, SLURM_JOB_ID=123, since …"
  [[nodiscard]] std::string words() const;
};

/// The caller.
LockHolder this_process();

enum class Life { unknown, alive, dead };
/// Known only of processes that the caller's system numbers.
Life life_of(const LockHolder& holder);

}  // namespace dstune
