#pragma once
/// One operation of a plan after the other, onto kernels, group and the step's scalars.

#include <chrono>
#include <cstdint>
#include <vector>

#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/train/executor.hpp"
#include "loss_scaler.hpp"
#include "micro_batch.hpp"
#include "planned_memory.hpp"

namespace dstune::train {

/// Streams run in the program's order on a CPU, so events are always reached.
class Dispatch {
 public:
  Dispatch(const StepPlan& plan, const kernels::Table& table, PlannedMemory& memory,
           ProcessGroup& group, std::uint64_t seed);

  /// Forgets what earlier steps have left in the scalars.
  void begin_training();
  void begin_step(std::int64_t step);
  void begin_micro_step(std::int64_t micro_step) { micro_batch_.fill(step_, micro_step); }
  void run(const std::vector<Step>& steps);
  /// Whether the step's update is to be left out.
  [[nodiscard]] bool is_skipped() const { return outcome_.skipped; }
  /// Ends the last phase.
  const StepOutcome& end_step();

  void operator()(const op::Acquire& o) { memory_.acquire(o.tensor); }
  void operator()(const op::Release& o) { memory_.release(o.tensor); }
  void operator()(const op::Mark& o);
  void operator()(const op::Record&) {}
  void operator()(const op::Wait&) {}
  void operator()(const op::FillNormal& o);
  void operator()(const op::Fill& o);
  void operator()(const op::EmbeddingForward& o);
  void operator()(const op::EmbeddingBackward& o);
  void operator()(const op::NormForward& o);
  void operator()(const op::NormBackward& o);
  void operator()(const op::Matmul& o);
  void operator()(const op::BiasBackward& o);
  void operator()(const op::HeadNormForward& o);
  void operator()(const op::HeadNormBackward& o);
  void operator()(const op::Rotary& o);
  void operator()(const op::AttentionForward& o);
  void operator()(const op::AttentionBackward& o);
  void operator()(const op::ActivationForward& o);
  void operator()(const op::ActivationBackward& o);
  void operator()(const op::CrossEntropy& o);
  void operator()(const op::Add& o);
  void operator()(const op::Convert& o);
  void operator()(const op::Copy& o);
  void operator()(const op::Reshard& o);
  void operator()(const op::AllReduceAverage& o);
  void operator()(const op::ReduceAverage& o);
  void operator()(const op::ReduceScatterAverage& o);
  void operator()(const op::AllGather& o);
  void operator()(const op::AccumulateLoss& o);
  void operator()(const op::FinishLoss& o);
  void operator()(const op::AccumulateSquares& o);
  void operator()(const op::CheckOverflow& o);
  void operator()(const op::ClipFactor& o);
  void operator()(const op::Adam& o);

 private:
  using Clock = std::chrono::steady_clock;

  /// The address of a view as the kernel wants it.
  template <class T = void>
  [[nodiscard]] T* at(const View& view) const {
    return reinterpret_cast<T*>(memory_.address(view));
  }
  [[nodiscard]] kernels::DType type(const View& view) const {
    return kernel_type(memory_.type(view));
  }
  [[nodiscard]] kernels::AttentionShape attention_shape(const View& qkv) const;
  double group_sum(double mine);
  void end_phase();

  const StepPlan& plan_;
  const kernels::Table& table_;
  PlannedMemory& memory_;
  ProcessGroup& group_;
  std::uint64_t seed_;
  MicroBatch micro_batch_;

  LossScaler scaler_;

  std::int64_t step_ = 0;
  std::int64_t updates_ = 0;  ///< made before this step
  double loss_sum_ = 0;
  double squares_ = 0;
  float gradient_scale_ = 1;
  StepOutcome outcome_;
  Phase phase_ = Phase::forward;
  Clock::time_point phase_began_;
};

/// Kernel shapes of planned operations.
kernels::MatmulShape matmul_shape(const op::Matmul& o, DType type, DType out_type);
kernels::AttentionShape attention_shape(std::int64_t batch, std::int64_t sequence,
                                        const ModelSpec& model, DType type);
/// The update number `update`, from 0.
kernels::AdamStep adam_step(const OptimizerConfig& optimizer, std::int64_t update,
                            float gradient_scale);

}  // namespace dstune::train
