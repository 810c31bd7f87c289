#pragma once
/// What a user sees while it runs, on stderr: a line for each experiment that ended, and on a
/// terminal one line that is rewritten. Local, rank 0 only.

#include <chrono>
#include <cstddef>
#include <string>

#include "dstune/core/measurement.hpp"

namespace dstune {

class Progress {
 public:
  enum class Style { silent, lines, terminal };
  explicit Progress(Style style);
  ~Progress();

  void begin(std::size_t num_planned, std::size_t num_known);
  void started(const Experiment& experiment);
  void stepped(const std::string& experiment, int steps);
  void ended(const Record& record, Metric metric, bool is_known, bool is_best);
  /// One that was run once more.
  void repeated(const Experiment& experiment, const Repeat& repeat, Metric metric);
  void end();

 private:
  void line(const std::string& text);
  void rewrite();
  Style style_;
  std::size_t planned_ = 0;
  std::size_t ended_ = 0;
  std::size_t running_ = 0;
  std::string latest_;
  std::string best_;
  std::chrono::steady_clock::time_point last_rewrite_{};
  std::chrono::steady_clock::time_point last_line_{};
  std::chrono::steady_clock::time_point began_{};
  bool is_line_open_ = false;
};

}  // namespace dstune
