#pragma once
/// Recorded tables as target_figures looks at them: DeepSpeed's own times, and how near an estimate
/// of them comes. Local.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "dstune/core/target_time.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/ranking/calibration.hpp"

namespace dstune::bench {

struct Configuration {
  std::string name;
  int stage = 0;
  Precision precision = Precision::fp32;
  double batch = 0;
  std::vector<double> deepspeed;  ///< samples/s, of each pass
  double measured_s = 0;
  double predicted_s = 0;  ///< 0: it was not predicted
  Overheads overheads{};

  /// samples/s, the mean of all passes, or of every second one.
  [[nodiscard]] double throughput(std::size_t first = 0, std::size_t stride = 1) const {
    double sum = 0, count = 0;
    for (std::size_t pass = first; pass < deepspeed.size(); pass += stride, ++count)
      sum += deepspeed[pass];
    return sum / count;
  }
  [[nodiscard]] double deepspeed_s() const { return batch / throughput(); }
};
using Configurations = std::vector<Configuration>;

struct Table {
  std::string name = {};  ///< of the file, without its ending
  Configurations all;
  std::size_t baseline = 0;  ///< that takes the first candidate of every list
  bool is_on_gpus = false;

  /// A single pass is both what names the best and what judges it.
  [[nodiscard]] bool has_passes() const {
    return std::ranges::all_of(all,
                               [](const Configuration& one) { return one.deepspeed.size() > 1; });
  }
};

/// Throws what read_fidelity_table() does.
[[nodiscard]] Table read_table(const std::string& space_path, const std::string& table_path);

/// DeepSpeed's times beside ours.
[[nodiscard]] std::vector<CalibrationPoint> points_of(const Configurations& all);

/// Seconds of an optimizer step, by some estimate of DeepSpeed's.
using Estimate = std::function<double(const Configuration&)>;

[[nodiscard]] Estimate in_target(const TimeCalibration& calibration, double Configuration::*here_s);

struct Figures {
  double correlation = 0;
  double regret = 0;  ///< how much faster DeepSpeed's best is there than the best by the estimate
  double error = 0;   ///< mean, of times
  std::size_t best = 0;  ///< by the estimate
};

/// `scales`: the error after one common scale. `first`, `stride`: the passes that are the truth.
[[nodiscard]] Figures figures_of(const Configurations& all, const Estimate& estimate,
                                 bool scales = false, std::size_t first = 0,
                                 std::size_t stride = 1);

}  // namespace dstune::bench
