#include "dstune/predict/roofline.hpp"

#include <algorithm>
#include <cmath>

#include "dstune/base/error.hpp"
#include "dstune/plan/memory.hpp"

namespace dstune {
namespace {

/// A part of the group that communicates: ranks of it on each node, and nodes.
struct Part {
  int on_node = 1;
  int nodes = 1;
  [[nodiscard]] double ranks() const { return static_cast<double>(on_node) * nodes; }
};

Part part_of(const Work& work, GroupShape shape) {
  if (work.width == 0) return {shape.num_gpus, shape.num_nodes};
  const auto ranks = static_cast<int>(work.width);
  const auto stride = static_cast<int>(std::max<std::int64_t>(1, work.depth));
  const int on_node = std::clamp(shape.num_gpus / stride, 1, ranks);
  return {on_node, (ranks + on_node - 1) / on_node};
}

/// Bytes that each rank sends, of those of the buffer.
double share_that_travels(WorkKind kind, double ranks) {
  const double share = (ranks - 1) / ranks;
  return kind == WorkKind::all_reduce ? 2 * share : share;
}

double faster_of(const CollectiveWay& small, const CollectiveWay& large, double seconds,
                 double latency_factor) {
  const auto takes = [&](const CollectiveWay& way) {
    return way.latency_s * latency_factor + seconds / way.share;
  };
  return std::min(takes(small), takes(large));
}

/// Tokens, hidden elements and the like that a pass goes over.
double elements_of(const Work& work) {
  const auto columns = static_cast<double>(std::max<std::int64_t>(1, work.width)) *
                       static_cast<double>(std::max<std::int64_t>(1, work.depth));
  switch (work.kind) {
    case WorkKind::head_norm_forward:
    case WorkKind::head_norm_backward:
    case WorkKind::rotary:
    case WorkKind::cross_entropy:
      return static_cast<double>(work.size) * columns;
    case WorkKind::norm_forward:
    case WorkKind::norm_backward:
      return static_cast<double>(work.size) * static_cast<double>(work.width);
    default:
      return static_cast<double>(work.size);
  }
}

/// A soft cap: bytes of an element that its division, tanh and product move.
double cap_bytes(bool is_forward, double e) {
  return (is_forward ? 6 : 7) * e;
}

/// Eager attention's scores: bytes of each that forward or backward moves.
double score_bytes(bool is_forward, double e, const TargetKernels& kernels) {
  const double more =
      (kernels.drops_out ? 2 * e + 1 : 0) + (kernels.caps_scores ? cap_bytes(is_forward, e) : 0);
  // Written by the product, scaled, masked, softmax, read by the product.
  if (is_forward) return 9 * e + more + (kernels.softmax_in_fp32 ? 8 : 0);
  // The products' gradient, that of the softmax, of the mask, of the scale; both products read.
  return 12 * e + more + (kernels.softmax_in_fp32 ? 12 : 0);
}

/// PyTorch's passes over a loss's logits, bytes of each. Full: a copy in fp32, one without the last
/// position, log-probabilities, and the gradients of all of them.
double logit_bytes(double e, const TargetKernels& kernels) {
  const double f = kernels.fp32_logits ? 4 : e;
  switch (kernels.loss) {
    case TargetLoss::full:
      return (kernels.fp32_logits ? 2 * (e + 4) : 0) + 10 * f;
    case TargetLoss::in_place:
      return (kernels.fp32_logits ? 2 * (e + 4) : 0) + 3 * f;
    case TargetLoss::chunked:
      return (kernels.fp32_logits ? 2 * (e + 4) : 0) + 5 * f;
    case TargetLoss::fused:
      return 3 * e + f;
  }
  throw LogicError("a loss is of a known kind");
}

constexpr double half_of_host_memory = 0.5;  ///< what processors reach of the peak
constexpr double copies_of_host_memory = 0.4;

}  // namespace

std::string roofline_lacks(const Cluster& cluster, GroupShape shape) {
  if (!cluster.device || cluster.device->memory_bytes_per_s <= 0)
    return "the rates of the GPU (--device, dstune.device.name)";
  if (!cluster.node)
    return "how the GPUs of a node are connected (--device of a known GPU tells it)";
  if (shape.num_nodes > 1 && !cluster.network)
    return "the network between nodes (--network, dstune.device.network)";
  return {};
}

TargetKernels target_kernels(const ModelSpec& model, const TrainingConfig& config,
                             const TargetSpec& target) {
  const bool is_of_config = target.optimizer == TargetOptimizer::of_config;
  const bool old = model.family == ModelFamily::gpt2 || model.family == ModelFamily::bert;
  // transformers has no sdpa of Gemma 2.
  const bool is_eager =
      target.attention == TargetAttention::sdpa && model.family == ModelFamily::gemma2;
  return {.attention = is_eager ? TargetAttention::eager : target.attention,
          .loss = target.loss,
          .fp32_logits = target.fp32_logits,
          .list_wise_optimizer = is_of_config ? config.optimizer.torch_adam
                                              : target.optimizer == TargetOptimizer::adamw_torch,
          .softmax_in_fp32 = !old,
          .drops_out = model.dropout > 0,
          .caps_scores = model.architecture.attention_softcap > 0,
          .caps_logits = model.architecture.logits_softcap > 0,
          .num_heads = model.num_heads,
          .trained_share = trained_part(model, target).share,
          .gathers_all = config.zero_stage == 3,
          .copies_all = are_parameters_offloaded(config)};
}

double target_bytes(const Work& work, const TargetKernels& kernels) {
  const auto e = static_cast<double>(size_bytes(work.out_type));
  const double count = elements_of(work);
  const double mask = kernels.drops_out ? 2 * e + 1 : 0;
  const bool is_fp32 = e == 4;
  // Liger's kernels come with the fused loss: a pass for each of these.
  const bool is_liger = kernels.loss == TargetLoss::fused;
  switch (work.kind) {
    // Llama's norm is written out in Python: a copy in fp32, its square, their mean, the product
    // with the root, the copy back, the product with the weight. A residual is added apart.
    case WorkKind::norm_forward:
    case WorkKind::head_norm_forward: {
      const bool has_residual = work.has(WorkFlag::residual);
      const bool is_rms = work.kind == WorkKind::head_norm_forward || work.has(WorkFlag::rms);
      const double written_out = is_fp32 ? 28 : 28 + 4 * e;
      const double norm = is_rms && !is_liger ? written_out : 2 * e;
      return count * (norm + (has_residual ? 3 * e + mask : 0));
    }
    case WorkKind::norm_backward:
    case WorkKind::head_norm_backward: {
      const bool is_rms = work.kind == WorkKind::head_norm_backward || work.has(WorkFlag::rms);
      const double written_out = is_fp32 ? 76 : 64 + 7 * e;
      const double norm = is_rms && !is_liger ? written_out : 5 * e;
      return count * (norm + (work.has(WorkFlag::accumulate) ? 3 * e + mask : 0));
    }
    // Half is negated, both halves are joined, two products, a sum.
    case WorkKind::rotary:
      return count * (is_liger ? 2 : 10) * e;
    case WorkKind::activation_forward:
      if (work.has(WorkFlag::gated)) return count * (is_liger ? 3 : 5) * e;
      return count * (work.has(WorkFlag::gelu_tanh) ? 18 : 2) * e;
    case WorkKind::activation_backward:
      if (work.has(WorkFlag::gated)) return count * (is_liger ? 5 : 9) * e;
      return count * (work.has(WorkFlag::gelu_tanh) ? 31 : 3) * e;
    case WorkKind::cross_entropy: {
      const double caps =
          kernels.caps_logits && !is_liger ? cap_bytes(true, e) + cap_bytes(false, e) : 0;
      return count * (logit_bytes(e, kernels) + caps);
    }
    case WorkKind::attention_forward:
    case WorkKind::attention_backward: {
      const auto sequence = static_cast<double>(work.width);
      const auto heads = static_cast<double>(kernels.num_heads);
      const bool is_forward = work.kind == WorkKind::attention_forward;
      if (kernels.attention != TargetAttention::eager)
        return static_cast<double>(work.size) * sequence * static_cast<double>(work.depth) * e *
               (is_forward ? 4 : 8);
      return static_cast<double>(work.size) * heads * sequence * sequence *
             score_bytes(is_forward, e, kernels);
    }
    // DeepSpeed's copy of the gradient in fp32, its norm, its scale, and the copy of the parameters
    // back; then the optimizer.
    case WorkKind::update: {
      const double of_deepspeed = work.has(WorkFlag::separate_model) ? 20 + 2 * e : 12;
      return count * of_deepspeed + (kernels.list_wise_optimizer ? 80 * count : amount(work));
    }
    default:
      return amount(work);
  }
}

Roofline::Roofline(const Cluster& cluster, GroupShape shape,
                   const std::optional<TargetKernels>& kernels)
    : shape_(shape), kernels_(kernels) {
  require(roofline_lacks(cluster, shape).empty(), "the machine's rates are known");
  device_ = *cluster.device;
  node_ = *cluster.node;
  network_ = cluster.network;
  memory_bytes_per_s_ = device_.memory_bytes_per_s * device_.memory_share;
  host_memory_bytes_per_s_ = half_of_host_memory * node_.host_memory_bytes_per_s / shape.num_gpus;
}

double Roofline::flops_per_s(DType type, double share) const {
  const auto place = static_cast<std::size_t>(type == DType::bf16  ? Precision::bf16
                                              : type == DType::f16 ? Precision::fp16
                                                                   : Precision::fp32);
  double peak = device_.peak_flops.at(place);
  // A device without products of 16 bits takes them in fp32.
  if (peak == 0) peak = device_.peak_flops[0];
  return peak * device_.product_share * share;
}

Work Roofline::trained_part_of(Work work) const {
  if (!kernels_ || kernels_->trained_share == 1) return work;
  const bool is_copy = work.has(WorkFlag::to_host) || work.has(WorkFlag::to_device);
  bool is_part = is_copy && !kernels_->copies_all;
  switch (work.kind) {
    case WorkKind::all_gather:
      is_part = !kernels_->gathers_all;
      break;
    case WorkKind::all_reduce:
    case WorkKind::reduce:
    case WorkKind::reduce_scatter:
    case WorkKind::all_to_all:
    case WorkKind::update:
    case WorkKind::squares:
    case WorkKind::add:
      is_part = true;
      break;
    default:
      // Products of gradients of weights have their first input transposed.
      is_part = is_part || (is_product(work.kind) && work.has(WorkFlag::transpose_a));
  }
  if (is_part)
    work.size = std::max<std::int64_t>(
        1, std::llround(kernels_->trained_share * static_cast<double>(work.size)));
  return work;
}

double Roofline::product_s(const Work& work) const {
  const auto parts = parts_of(work);
  if (parts) {
    double beside_s = 0;
    // Our step does in one kernel what is beside a product.
    if (kernels_) beside_s = seconds(parts->second);
    return product_s(parts->first) + beside_s;
  }
  const TrainingRates& rates = training_rates();
  const bool is_aligned =
      work.type == DType::f32 || (work.width % 8 == 0 && work.depth % 8 == 0 && work.size % 8 == 0);
  const double share = device_.training_share * (is_aligned ? 1 : rates.unaligned_share);
  const auto m = static_cast<double>(work.size);
  const auto n = static_cast<double>(work.width);
  const auto k = static_cast<double>(work.depth);
  const double bytes = (m * n + n * k + m * k) * static_cast<double>(size_bytes(work.type));
  // A product that is small waits for its first tiles and ends with few of them.
  return std::max(amount(work) / flops_per_s(work.type, share), bytes / memory_bytes_per_s_) +
         2 * device_.launch_s;
}

double Roofline::attention_s(const Work& work) const {
  const TrainingRates& rates = training_rates();
  if (!kernels_ || kernels_->attention != TargetAttention::eager)
    return amount(work) / flops_per_s(work.type, rates.attention_share) + 2 * device_.launch_s;
  // Both halves of the scores are computed, backward without what forward has kept.
  const double products = work.kind == WorkKind::attention_forward ? 1 : 4.0 / 5;
  const double causal = work.has(WorkFlag::causal) ? 2 : 1;
  return causal * products * amount(work) / flops_per_s(work.type, rates.eager_attention_share) +
         target_bytes(work, *kernels_) / memory_bytes_per_s_ + 8 * device_.launch_s;
}

double Roofline::collective_s(const Work& work) const {
  const Part part = part_of(work, shape_);
  if (part.ranks() <= 1) return 0;
  const double travels = share_that_travels(work.kind, part.ranks()) * amount(work);
  double inside_s = 0;
  if (part.on_node > 1) {
    double rate = node_.link_share * device_.host_bytes_per_s;
    if (node_.links != NodeLinks::bus) {
      rate = node_.link_share * (work.kind == WorkKind::all_reduce ? device_.all_reduce_bytes_per_s
                                                                   : device_.gather_bytes_per_s);
      if (node_.links == NodeLinks::mesh)
        rate *= std::min(1.0, (part.on_node - 1.0) / std::max(1, node_.num_gpus - 1));
    }
    inside_s = faster_of(node_.small, node_.large, travels / rate, 1);
  }
  if (part.nodes == 1) return inside_s;
  // Parts that communicate at once share the node's network.
  const double node_share = static_cast<double>(part.on_node) / shape_.num_gpus;
  const double rate = network_->node_bytes_per_s * network_->share * node_share;
  const double doublings = std::log2(static_cast<double>(part.nodes));
  const double between_s =
      faster_of(network_->small, network_->large, travels / rate, std::max(1.0, doublings));
  return std::max(inside_s, between_s);
}

bool Roofline::is_between_nodes(const Work& collective) const {
  return part_of(collective, shape_).nodes > 1;
}

double Roofline::host_s(const Work& work) const {
  if (work.kind != WorkKind::update) return amount(work) / host_memory_bytes_per_s_;
  const int ranks = shape_.num_gpus;
  double rate = node_.adam_parameters_per_s;
  // Ranks that are not bound to cores have a thread each, or are in each other's way.
  if (kernels_ && ranks > 1) rate = std::min(rate, training_rates().shared_adam_parameters_per_s);
  return static_cast<double>(work.size) * ranks / rate;
}

double Roofline::seconds(const Work& whole, bool on_host) const {
  const Work work = trained_part_of(whole);
  if (is_product(work.kind)) return product_s(work);
  if (work.kind == WorkKind::exchange) return node_.small.latency_s;
  if (is_collective(work.kind)) return collective_s(work);
  if (work.kind == WorkKind::attention_forward || work.kind == WorkKind::attention_backward)
    return attention_s(work);
  if (work.kind == WorkKind::disk_read || work.kind == WorkKind::disk_write)
    return amount(work) * shape_.num_gpus / node_.disk_bytes_per_s;
  if (work.has(WorkFlag::to_host) || work.has(WorkFlag::to_device)) {
    const double bytes = static_cast<double>(work.size * size_bytes(work.type));
    const double of_memory =
        copies_of_host_memory * node_.host_memory_bytes_per_s / shape_.num_gpus;
    return bytes / std::min(device_.host_bytes_per_s, of_memory) + device_.launch_s;
  }
  if (on_host) return host_s(work);
  const double bytes = kernels_ ? target_bytes(work, *kernels_) : amount(work);
  return bytes / memory_bytes_per_s_ + device_.launch_s;
}

}  // namespace dstune
