#pragma once
/// What DeepSpeed's work costs on this machine, measured at the start of the job: tiny engines run
/// beside our own step, and the constants of the target's time are fitted to both. Rank 0 only.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/attempts.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "start/open_job.hpp"
#include "target/tiny_engines.hpp"

namespace dstune {

/// Fewer points than this change nothing.
inline constexpr std::size_t min_tiny_engines = 5;

/// Gives tiny engines to one group, each in our own step and in DeepSpeed. Knows no MPI.
class TargetMeasuring {
 public:
  struct Options {
    double limit_s = 20;          ///< in all; what would not end before it is not begun, …
    double last_s = 90;           ///< … but for what is needed, on a busy machine
    double timeout_s = 60;        ///< of one run
    double abort_grace_s = 10;    ///< as Attempts::Limits'
    double drain_timeout_s = 20;  ///< likewise
    MeasureOptions measure{3, 8, 2.5};
    std::uint64_t own_step = 0;  ///< the instruments' places among the job's
    std::uint64_t engine = 1;
    std::function<bool()> is_to_be_ended{};  ///< a signal, the time limit; may be empty
  };
  /// The driver outlives it.
  TargetMeasuring(AttemptDriver& driver, std::vector<int> world_ranks, Options options)
      : driver_(driver), world_ranks_(std::move(world_ranks)), options_(std::move(options)) {}

  /// All of them, and all again while there is time. A failure costs its point; a lost rank or the
  /// job's end ends it.
  std::vector<CalibrationPoint> run(std::span<const TinyEngine> engines);
  /// Why the first that failed did; empty where none has.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  [[nodiscard]] std::optional<CalibrationPoint> point_of(const TinyEngine& engine);
  /// Seconds of a step; nothing where it failed.
  [[nodiscard]] std::optional<double> step_s(const TinyEngine& engine, std::uint64_t instrument);
  [[nodiscard]] Measurement await();

  AttemptDriver& driver_;
  std::vector<int> world_ranks_;
  Options options_;
  std::string failure_;
  bool is_cut_short_ = false;
};

/// Puts this machine's constants in the place of those that come with the program, by what the
/// journal has of an earlier job, or by measuring. Where too few engines ran these stay.
void measure_target(OpenJob& ready, AttemptDriver& driver,
                    const std::function<bool()>& is_to_be_ended);

/// Of all that the measured constants depend on.
std::string key_of_target(const OpenJob& ready);

}  // namespace dstune
