#include "dstune/base/error.hpp"
#include "dstune/core/calibration.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

namespace {

using Row = EnumText;

constexpr Row precisions[] = {enum_text(Precision::fp32, "fp32"),
                              enum_text(Precision::bf16, "bf16"),
                              enum_text(Precision::fp16, "fp16")};
constexpr Row recomputes[] = {enum_text(Recompute::none, "none"),
                              enum_text(Recompute::selective, "selective"),
                              enum_text(Recompute::block, "block")};
constexpr Row optimizer_kinds[] = {
    enum_text(OptimizerKind::adam, "adam"), enum_text(OptimizerKind::adamw, "adamw"),
    enum_text(OptimizerKind::lion, "lion"), enum_text(OptimizerKind::sgd, "sgd"),
    enum_text(OptimizerKind::adagrad, "adagrad")};
constexpr Row offload_devices[] = {enum_text(OffloadDevice::none, "none"),
                                   enum_text(OffloadDevice::cpu, "cpu"),
                                   enum_text(OffloadDevice::nvme, "nvme")};
constexpr Row communication_types[] = {enum_text(CommunicationType::as_gradients, "as_gradients"),
                                       enum_text(CommunicationType::fp32, "fp32"),
                                       enum_text(CommunicationType::fp16, "fp16"),
                                       enum_text(CommunicationType::bf16, "bf16")};
constexpr Row overheads[] = {enum_text(Overhead::optimizer_step, "optimizer_step"),
                             enum_text(Overhead::module_call, "module_call"),
                             enum_text(Overhead::gradient_hook, "gradient_hook"),
                             enum_text(Overhead::gathering_hook, "gathering_hook"),
                             enum_text(Overhead::communicated_byte, "communicated_byte")};
constexpr Row plan_statuses[] = {enum_text(PlanStatus::planned, "planned"),
                                 enum_text(PlanStatus::infeasible, "infeasible"),
                                 enum_text(PlanStatus::pruned, "pruned")};
constexpr Row statuses[] = {enum_text(Status::ok, "ok"), enum_text(Status::raced_out, "raced_out"),
                            enum_text(Status::out_of_memory, "out_of_memory"),
                            enum_text(Status::timed_out, "timed_out"),
                            enum_text(Status::failed, "failed")};
constexpr Row metrics[] = {enum_text(Metric::throughput, "throughput"),
                           enum_text(Metric::throughput_per_gpu, "throughput_per_gpu"),
                           enum_text(Metric::latency, "latency"),
                           enum_text(Metric::flops, "flops")};
constexpr Row repeat_kinds[] = {enum_text(RepeatKind::spread, "spread"),
                                enum_text(RepeatKind::final_round, "final")};
constexpr Row workload_kinds[] = {enum_text(WorkloadKind::transformer, "transformer"),
                                  enum_text(WorkloadKind::synthetic, "synthetic"),
                                  enum_text(WorkloadKind::replay, "replay"),
                                  enum_text(WorkloadKind::plugin, "plugin")};

}  // namespace

const EnumTexts& texts_of(Precision) {
  static constexpr EnumTexts texts{precisions};
  return texts;
}
const EnumTexts& texts_of(Recompute) {
  static constexpr EnumTexts texts{recomputes};
  return texts;
}
const EnumTexts& texts_of(OptimizerKind) {
  static constexpr EnumTexts texts{optimizer_kinds};
  return texts;
}
const EnumTexts& texts_of(OffloadDevice) {
  static constexpr EnumTexts texts{offload_devices};
  return texts;
}
const EnumTexts& texts_of(CommunicationType) {
  static constexpr EnumTexts texts{communication_types};
  return texts;
}
const EnumTexts& texts_of(Overhead) {
  static constexpr EnumTexts texts{overheads};
  return texts;
}
const EnumTexts& texts_of(PlanStatus) {
  static constexpr EnumTexts texts{plan_statuses};
  return texts;
}
const EnumTexts& texts_of(Status) {
  static constexpr EnumTexts texts{statuses, "\"{}\" is no status of an experiment"};
  return texts;
}
const EnumTexts& texts_of(Metric) {
  static constexpr EnumTexts texts{metrics};
  return texts;
}
const EnumTexts& texts_of(RepeatKind) {
  static constexpr EnumTexts texts{repeat_kinds};
  return texts;
}
const EnumTexts& texts_of(WorkloadKind) {
  static constexpr EnumTexts texts{workload_kinds};
  return texts;
}

std::string_view unit_text(Metric metric) {
  switch (metric) {
    case Metric::throughput:
      return "samples/s";
    case Metric::throughput_per_gpu:
      return "samples/s per GPU";
    case Metric::latency:
      return "µs per optimizer step";
    case Metric::flops:
      return "FLOP/s per GPU";
  }
  throw LogicError("unknown metric");
}

bool is_minimised(Metric metric) {
  return metric == Metric::latency;
}

}  // namespace dstune
