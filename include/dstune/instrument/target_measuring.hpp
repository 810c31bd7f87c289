#pragma once
/// The costs of DeepSpeed's work on this machine, measured at the start of the job. Tiny engines
/// run in the built-in step and in DeepSpeed. The constants of the target's time are fitted to
/// both. Rank 0's. Local.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dstune/instrument/engine/tiny_engines.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/ranking/calibration.hpp"

namespace dstune {

/// A configuration that runs before the search, on ranks that its caller knows.
struct Trial {
  const ModelSpec* model = nullptr;  ///< in place of the job's
  const Experiment* experiment = nullptr;
  RunInput input{};
  std::uint64_t instrument = 0;  ///< its place among the job's
  MeasureOptions measure{};
  double timeout_s = 0;
  double drain_timeout_s = 0;  ///< as of RunLimits
};
struct TrialEnd {
  Measurement measurement;
  bool is_last = false;  ///< nothing more can run: a rank was lost, or the job is to end
};
/// A way to run a trial. Returns when it has ended.
using RunTrial = std::function<TrialEnd(const Trial&)>;

/// Fewer points than this change nothing.
inline constexpr std::size_t min_tiny_engines = 5;

/// Runs tiny engines, each in the built-in step and in DeepSpeed.
class TargetMeasuring {
 public:
  struct Options {
    double limit_s = 20;          ///< in all: a run that would not end before it is not begun, …
    double last_s = 90;           ///< … but those that are needed are, on a busy machine
    double timeout_s = 60;        ///< of one run
    double drain_timeout_s = 20;  ///< as of RunLimits
    MeasureOptions measure{3, 8, 2.5, true};
    std::uint64_t own_step = 0;  ///< the instruments' places among the job's
    std::uint64_t engine = 1;
  };
  TargetMeasuring(RunTrial run, Options options)
      : run_(std::move(run)), options_(std::move(options)) {}

  /// All of them, and all again while there is time. A failure costs its point.
  std::vector<CalibrationPoint> run(std::span<const TinyEngine> engines);
  /// Why the first that failed did; empty where none has.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  [[nodiscard]] std::optional<CalibrationPoint> point_of(const TinyEngine& engine);
  /// Seconds of a step; nothing where it failed.
  [[nodiscard]] std::optional<double> step_s(const TinyEngine& engine, std::uint64_t instrument);

  RunTrial run_;
  Options options_;
  std::string failure_;
  bool is_cut_short_ = false;
};

}  // namespace dstune
