#include "step_bounds.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

namespace dstune {
namespace {

constexpr double giga = 1e9;
constexpr double tera = 1e12;
/// Up to which the norms' backward reads everything once (kernels/cuda/isa).
constexpr std::int64_t widest_norm_row = 4096;

/// Rows, columns and the length of the sums.
struct ProductShape {
  double m, n, k;
};
ProductShape shape_of(const Work& work) {
  const auto size = static_cast<double>(work.size);
  const auto width = static_cast<double>(work.width);
  const auto depth = static_cast<double>(work.depth);
  return work.has(WorkFlag::transpose_a) ? ProductShape{width, depth, size}
                                         : ProductShape{size, width, depth};
}

/// The library's epilogue adds the gradient of a bias to nothing.
bool has_own_sums(const Work& work) {
  return work.kind == WorkKind::matmul_bias_backward && work.has(WorkFlag::accumulate);
}

double product_bytes(const Work& work) {
  const auto [m, n, k] = shape_of(work);
  // What is activated beside it, or the activation's input, is as large as the result.
  const bool is_activated = work.kind == WorkKind::matmul_activation_forward ||
                            work.kind == WorkKind::matmul_activation_backward;
  const double passes = work.has(WorkFlag::accumulate) || is_activated ? 2 : 1;
  const double readings = has_own_sums(work) ? 2 : 1;
  return static_cast<double>(size_bytes(work.type)) * (readings * m * k + k * n) +
         static_cast<double>(size_bytes(work.out_type)) * passes * m * n;
}

double attention_bytes(const StepPlan& plan, const Work& work) {
  const ModelSpec& model = plan.model;
  const double bytes = static_cast<double>(size_bytes(work.type));
  const double rows = static_cast<double>(plan.config.micro_batch * plan.config.sequence_length);
  const double out = bytes * rows * static_cast<double>(work.depth);
  const double qkv =
      bytes * rows *
      static_cast<double>((model.num_heads + 2 * model.num_kv_heads) * model.head_size);
  if (work.kind == WorkKind::attention_forward) return qkv + out;
  // The deterministic form moves its scores' gradient, too, which is not counted.
  return 2 * qkv + 2 * out;
}

double embedding_backward_bytes(const StepPlan& plan, const Work& work) {
  const double gradient = static_cast<double>(size_bytes(work.type) * work.size * work.width);
  // At most as many rows of the table as there are tokens.
  const double table =
      static_cast<double>(size_bytes(work.out_type) * std::min(work.size, work.depth) * work.width);
  const double passes = plan.model.architecture.positions == PositionKind::learned ? 2 : 1;
  return passes * gradient + 2 * table;
}

/// Of a matrix product "products m×n×k" with what is transposed, and += where it adds.
std::string name_of(const Work& work) {
  std::string name(to_text(work.kind));
  if (!is_product(work.kind)) return name;
  const auto [m, n, k] = shape_of(work);
  char shape[80];
  std::snprintf(shape, sizeof shape, " %.0fx%.0fx%.0f %c%c%s", m, n, k,
                work.has(WorkFlag::transpose_a) ? 't' : 'n',
                work.has(WorkFlag::transpose_b) ? 't' : 'n',
                work.has(WorkFlag::accumulate) ? " +=" : "");
  return name + shape;
}

class Sums {
 public:
  Sums(const StepPlan& plan, const Peaks& peaks) : plan_(plan), peaks_(peaks) {}

  void add(const std::optional<Work>& work, double times) {
    if (!work) return;
    KindOfWork& kind = kinds_[name_of(*work)];
    const Cost cost = cost_of(plan_, *work);
    kind.count += times;
    kind.cost.flops += times * cost.flops;
    kind.cost.bytes += times * cost.bytes;
    kind.cost.launches += times * cost.launches;
    kind.least_s += times * least_s(cost, peaks_);
  }
  void add_measured(const std::optional<Work>& work, double seconds) {
    if (work) kinds_[name_of(*work)].measured_s += seconds;
  }
  std::vector<KindOfWork> sorted() {
    std::vector<KindOfWork> all;
    for (auto& [name, kind] : kinds_) {
      kind.name = name;
      all.push_back(kind);
    }
    std::ranges::sort(all, [](const KindOfWork& a, const KindOfWork& b) {
      return a.measured_s + a.least_s > b.measured_s + b.least_s;
    });
    return all;
  }

 private:
  const StepPlan& plan_;
  const Peaks& peaks_;
  std::map<std::string, KindOfWork> kinds_;
};

}  // namespace

Cost cost_of(const StepPlan& plan, const Work& work) {
  Cost cost;
  cost.bytes = amount(work);
  switch (work.kind) {
    case WorkKind::matmul:
    case WorkKind::matmul_activation_forward:
    case WorkKind::matmul_activation_backward:
    case WorkKind::matmul_bias_backward:
      cost.flops = amount(work);
      cost.bytes = product_bytes(work);
      if (has_own_sums(work)) cost.launches = 3;
      break;
    case WorkKind::attention_forward:
    case WorkKind::attention_backward:
      cost.flops = amount(work);
      cost.bytes = attention_bytes(plan, work);
      break;
    case WorkKind::embedding_backward:
      cost.bytes = embedding_backward_bytes(plan, work);
      cost.launches = 2;
      break;
    case WorkKind::norm_backward:
      cost.launches = 2;
      // What it reads of wide rows, once more for the weights' gradients.
      if (work.width > widest_norm_row) {
        cost.bytes += 2 * static_cast<double>(size_bytes(work.type) * work.size * work.width);
        cost.launches = 3;
      }
      break;
    case WorkKind::cross_entropy:
      // Read twice.
      cost.bytes += static_cast<double>(size_bytes(work.type) * work.size * work.width);
      break;
    case WorkKind::bias_backward:
    case WorkKind::sum:
    case WorkKind::squares:
      cost.launches = 2;
      break;
    case WorkKind::tokens:  // the host's
    case WorkKind::disk_read:
    case WorkKind::disk_write:
    case WorkKind::exchange:
      return {0, 0, 0};
    default:
      if (is_collective(work.kind)) cost.bytes = 0;
      break;
  }
  return cost;
}

double least_s(const Cost& cost, const Peaks& peaks) {
  const double compute_s = peaks.tflops > 0 ? cost.flops / (peaks.tflops * tera) : 0;
  const double memory_s = peaks.tbs > 0 ? cost.bytes / (peaks.tbs * tera) : 0;
  return std::max(compute_s, memory_s) + 1e-6 * peaks.launch_us * cost.launches;
}

std::vector<KindOfWork> kinds_of_work(const StepPlan& plan, const Peaks& peaks,
                                      const std::vector<StepTrace>& traces) {
  Sums sums(plan, peaks);
  for (const Segment& segment : plan.cycle) {
    const auto times = static_cast<double>(segment.repeat);
    for (const Step& step : segment.steps) sums.add(work_of(plan, step.operation), times);
    const bool is_micro_step =
        segment.kind != Segment::Kind::update && segment.kind != Segment::Kind::guarded_update;
    if (is_micro_step) sums.add(work_of_tokens(plan), times);
  }
  for (const StepTrace& trace : traces) {
    for (const TracedOperation& one : trace) {
      sums.add_measured(
          one.operation == nullptr ? work_of_tokens(plan) : work_of(plan, *one.operation),
          one.seconds / static_cast<double>(traces.size()));
    }
  }
  return sums.sorted();
}

void print_kinds(const std::vector<KindOfWork>& kinds, double step_flops, const Peaks& peaks) {
  double least_s = 0;
  double measured_s = 0;
  double launches = 0;
  for (const KindOfWork& kind : kinds) {
    least_s += kind.least_s;
    measured_s += kind.measured_s;
    launches += kind.cost.launches;
  }
  const bool is_measured = measured_s > 0;
  const bool has_bounds = least_s > 0;
  const double all_s = is_measured ? measured_s : least_s;
  std::printf("%-48s %6s %9s %9s", "operation", "count", "GB", "TFLOP");
  if (is_measured) std::printf(" %10s", "measured");
  if (has_bounds) std::printf(" %10s", "bound");
  if (is_measured && has_bounds) std::printf(" %6s", "times");
  std::printf(" %7s\n", "share");
  for (const KindOfWork& kind : kinds) {
    std::printf("%-48s %6.0f %9.3f %9.3f", kind.name.c_str(), kind.count, kind.cost.bytes / giga,
                kind.cost.flops / tera);
    if (is_measured) std::printf(" %7.3f ms", 1e3 * kind.measured_s);
    if (has_bounds) std::printf(" %7.3f ms", 1e3 * kind.least_s);
    if (is_measured && has_bounds)
      std::printf(" %6.2f", kind.least_s > 0 ? kind.measured_s / kind.least_s : 0);
    std::printf(" %6.1f%%\n",
                all_s > 0 ? 100 * (is_measured ? kind.measured_s : kind.least_s) / all_s : 0);
  }
  if (is_measured)
    std::printf("Operations one by one: %.3f ms a step, with a wait for each.\n", 1e3 * measured_s);
  if (!has_bounds) return;
  std::printf("Bound: %.3f ms a step at %g TFLOP/s, %g TB/s and %g us a launch (%.0f of them)",
              1e3 * least_s, peaks.tflops, peaks.tbs, peaks.launch_us, launches);
  std::printf(", which is %.1f TFLOP/s by 6N + 6LCT, one operation after the other.\n",
              step_flops / least_s / tera);
}

}  // namespace dstune
