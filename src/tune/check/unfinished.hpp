#pragma once
/// Rank 0's words on a check that does not come to its end. Any thread may call. Local.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check/rank_report.hpp"
#include "dstune/base/error.hpp"

namespace dstune {

/// The reports so far, as far as ranks have come.
class Unfinished {
 public:
  explicit Unfinished(bool json) : is_json_(json) {}

  /// The phase that is under way, as a literal.
  void set_phase(const char* phase) { phase_ = phase; }
  [[nodiscard]] const char* phase() const { return phase_; }
  /// Replaces what the rank reported before.
  void keep(const RankReport& report);
  /// The check says itself how it ended.
  void finish();
  /// On stdout, as JSON where that was asked for: what is known, and the reason. At most once.
  void print(ExitCode code, const std::string& reason);

 private:
  bool is_json_;
  std::atomic<const char*> phase_ = "at the start";
  std::mutex mutex_;  ///< of what follows
  std::vector<RankReport> reports_;
  bool is_over_ = false;
};

/// Ends the job where a rank or a library does not come back.
class Deadline {
 public:
  Deadline(double limit_s, std::shared_ptr<Unfinished> known);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace dstune
