#pragma once
/// Inputs and results of a step in the memory of the device's kernels: tokens and targets, rotary
/// frequencies, and sums that the host reads. They travel on the compute queue. The loss scale from
/// step to step is here, too.

#include <array>
#include <cstdint>

#include "dstune/core/training_config.hpp"
#include "dstune/device/device.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune::train {

/// The tokens and targets of one micro-step of one rank. docs/inside/reference-step.md, section 3.
class MicroBatch {
 public:
  /// The plan outlives it.
  MicroBatch(const StepPlan& plan, std::uint64_t seed) : plan_(plan), seed_(seed) {}

  /// Tokens are [micro-batch, sequence length]. So are targets, −1 where a token has none, but
  /// where samples have one class each, or spans all beginnings, then all ends.
  struct Tokens {
    std::int32_t* tokens;
    std::int32_t* targets;
  };
  [[nodiscard]] std::int64_t rows() const {
    return plan_.config.micro_batch * plan_.config.sequence_length;
  }
  [[nodiscard]] std::int64_t num_targets() const;
  /// Sample i of micro-step a on group rank r is sample (a·group size + r)·micro-batch + i of the
  /// step's global batch.
  void fill(std::int64_t step, std::int64_t micro_step, Tokens to) const;

 private:
  void fill_next_tokens(std::int64_t step, std::int64_t sample, Tokens to) const;
  void fill_masked_tokens(std::int64_t step, std::int64_t sample, Tokens to) const;
  void fill_tokens(std::int64_t step, std::int64_t sample, Tokens to) const;
  void fill_labels(std::int64_t step, std::int64_t first, Tokens to) const;

  const StepPlan& plan_;
  std::uint64_t seed_;
};

class StepInputs {
 public:
  /// Events that it takes, from first_event on.
  static constexpr int num_events = 3;

  /// Takes the device's arenas for inputs. Throws OutOfMemory.
  StepInputs(const StepPlan& plan, Device& device, std::uint64_t seed, int first_event);

  /// Sends what stays the same.
  void begin_training();
  /// The sums are 0.
  void begin_step();
  /// Makes tokens and targets, and sends them. The host is two micro-steps ahead at most.
  void begin_micro_step(std::int64_t step, std::int64_t micro_step);
  /// Brings both sums to the host, in the used queue.
  void send_sums();
  /// The sums as they were sent last. The host waits for them.
  struct Sums {
    double loss, squares;
  };
  [[nodiscard]] Sums wait_for_sums();
  /// Brings the norm to the host, in the used queue.
  void send_norm();
  /// Once the device is finished.
  [[nodiscard]] double norm_of_host() const { return *host_norm_; }

  // For kernels.
  [[nodiscard]] const std::int32_t* tokens() const { return device_.tokens; }
  [[nodiscard]] const std::int32_t* targets() const { return device_.targets; }
  /// local: of layers that rotate by angles of their own.
  [[nodiscard]] const double* frequencies(bool local) const {
    return frequencies_ + (local ? angles_.frequencies.size() : 0);
  }
  [[nodiscard]] float magnitude(bool local) const {
    return static_cast<float>(local ? local_angles_.magnitude : angles_.magnitude);
  }
  /// The sums that kernels add to, kernels::Table::sum_doubles long.
  [[nodiscard]] double* loss() const { return sums_; }
  [[nodiscard]] double* squares() const { return sums_ + sum_doubles_; }
  /// One a rank of the group.
  [[nodiscard]] double* squares_of_ranks() const { return squares_of_ranks_; }
  [[nodiscard]] double* norm() const { return norm_; }
  [[nodiscard]] float* gradient_scale() const { return gradient_scale_; }

 private:
  const kernels::Table& table_;
  Queues& queues_;
  MicroBatch micro_batch_;
  [[nodiscard]] std::int64_t num_frequencies() const;

  RotaryAngles angles_, local_angles_;
  std::int64_t sum_doubles_;
  int first_event_;

  MicroBatch::Tokens device_{};
  double* frequencies_ = nullptr;
  double* sums_ = nullptr;
  double* squares_of_ranks_ = nullptr;
  double* norm_ = nullptr;
  float* gradient_scale_ = nullptr;

  // The host's: a micro-step's tokens are made while those of the one before may still be sent.
  std::array<MicroBatch::Tokens, 2> host_{};
  double* host_frequencies_ = nullptr;
  double* host_sums_ = nullptr;
  double* host_norm_ = nullptr;
  std::size_t next_ = 0;
};

/// The loss scale of fp16 over the steps, as DeepSpeed 0.19.6 moves it: one way at stage 0, another
/// in its ZeRO optimizers (runtime/fp16/fused_optimizer.py, runtime/fp16/loss_scaler.py).
/// Local.
class LossScaler {
 public:
  explicit LossScaler(const TrainingConfig& config);

  /// Returns the factor by which the next step's loss is multiplied: 1 but in fp16.
  [[nodiscard]] double scale() const { return scale_; }

  /// exhausted: skipped, and the training ends because the scale can not fall.
  enum class Verdict : std::uint8_t { update, skip, exhausted };
  /// Tells the scaler whether a gradient of the step overflowed on any rank; scale() is then the
  /// next step's. It has to hear of every step.
  Verdict end_step(bool overflow);

 private:
  Verdict fall();
  void keep_or_raise();

  LossScale rules_;
  bool dynamic_;
  bool in_zero_optimizer_;
  double scale_ = 1;
  std::int64_t hysteresis_;  ///< what is left of it
  std::int64_t step_ = 0;
  std::int64_t last_overflow_ = -1;
};

}  // namespace dstune::train
