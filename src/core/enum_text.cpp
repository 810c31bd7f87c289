#include <array>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/core/calibration.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

namespace {

template <class Enum, std::size_t size>
using Names = std::array<std::pair<Enum, std::string_view>, size>;

constexpr Names<Precision, 3> precisions = {
    {{Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}, {Precision::fp16, "fp16"}}};
constexpr Names<Recompute, 3> recomputes = {
    {{Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::block, "block"}}};
constexpr Names<OptimizerKind, 5> optimizer_kinds = {{{OptimizerKind::adam, "adam"},
                                                      {OptimizerKind::adamw, "adamw"},
                                                      {OptimizerKind::lion, "lion"},
                                                      {OptimizerKind::sgd, "sgd"},
                                                      {OptimizerKind::adagrad, "adagrad"}}};
constexpr Names<OffloadDevice, 3> offload_devices = {
    {{OffloadDevice::none, "none"}, {OffloadDevice::cpu, "cpu"}, {OffloadDevice::nvme, "nvme"}}};
constexpr Names<CommunicationType, 4> communication_types = {
    {{CommunicationType::as_gradients, "as_gradients"},
     {CommunicationType::fp32, "fp32"},
     {CommunicationType::fp16, "fp16"},
     {CommunicationType::bf16, "bf16"}}};
constexpr Names<Overhead, num_overheads> overheads = {
    {{Overhead::optimizer_step, "optimizer_step"},
     {Overhead::module_call, "module_call"},
     {Overhead::gradient_hook, "gradient_hook"},
     {Overhead::gathering_hook, "gathering_hook"},
     {Overhead::communicated_byte, "communicated_byte"}}};
constexpr Names<PlanStatus, 3> plan_statuses = {{{PlanStatus::planned, "planned"},
                                                 {PlanStatus::infeasible, "infeasible"},
                                                 {PlanStatus::pruned, "pruned"}}};
constexpr Names<Status, 5> statuses = {{{Status::ok, "ok"},
                                        {Status::raced_out, "raced_out"},
                                        {Status::out_of_memory, "out_of_memory"},
                                        {Status::timed_out, "timed_out"},
                                        {Status::failed, "failed"}}};
constexpr Names<Metric, 4> metrics = {{{Metric::throughput, "throughput"},
                                       {Metric::throughput_per_gpu, "throughput_per_gpu"},
                                       {Metric::latency, "latency"},
                                       {Metric::flops, "flops"}}};
constexpr Names<RepeatKind, 2> repeat_kinds = {
    {{RepeatKind::spread, "spread"}, {RepeatKind::final_round, "final"}}};

template <class Enum, std::size_t size>
std::string_view text_of(const Names<Enum, size>& names, Enum value) {
  for (const auto& [each, text] : names)
    if (each == value) return text;
  throw LogicError("an enumerator without a name");
}

template <class Enum, std::size_t size>
std::optional<Enum> value_of(const Names<Enum, size>& names, std::string_view text) {
  for (const auto& [value, each] : names)
    if (each == text) return value;
  return std::nullopt;
}

}  // namespace

std::string_view to_text(Precision precision) {
  return text_of(precisions, precision);
}
std::string_view to_text(Recompute recompute) {
  return text_of(recomputes, recompute);
}
std::string_view to_text(OptimizerKind kind) {
  return text_of(optimizer_kinds, kind);
}
std::string_view to_text(OffloadDevice device) {
  return text_of(offload_devices, device);
}
std::string_view to_text(CommunicationType type) {
  return text_of(communication_types, type);
}
std::string_view to_text(Overhead overhead) {
  return text_of(overheads, overhead);
}
std::string_view to_text(PlanStatus status) {
  return text_of(plan_statuses, status);
}
std::string_view to_text(Status status) {
  return text_of(statuses, status);
}
std::string_view to_text(Metric metric) {
  return text_of(metrics, metric);
}
std::string_view to_text(RepeatKind kind) {
  return text_of(repeat_kinds, kind);
}
std::optional<RepeatKind> parse_repeat_kind(std::string_view text) {
  return value_of(repeat_kinds, text);
}
std::optional<Status> parse_status(std::string_view text) {
  return value_of(statuses, text);
}
std::optional<Metric> parse_metric(std::string_view text) {
  return value_of(metrics, text);
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
