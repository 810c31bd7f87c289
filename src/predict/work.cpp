#include "dstune/predict/work.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// Most kinds have the name of the operation whose work they are.
constexpr std::array<EnumText, num_work_kinds> kind_texts = [] {
  std::array<std::string_view, num_work_kinds> names{};
  const auto name = [&](WorkKind kind) -> std::string_view& {
    return names[static_cast<std::size_t>(kind)];
  };
  name(WorkKind::tokens) = "tokens";
  name(WorkKind::matmul_activation_forward) = "matmul_activation_forward";
  name(WorkKind::matmul_activation_backward) = "matmul_activation_backward";
  name(WorkKind::matmul_bias_backward) = "matmul_bias_backward";
  name(WorkKind::exchange) = "exchange";
  for (const OperationTraits& traits : operation_traits) {
    if (traits.work && name(*traits.work).empty()) name(*traits.work) = traits.name;
  }
  std::array<EnumText, num_work_kinds> texts{};
  for (std::size_t kind = 0; kind < texts.size(); ++kind)
    texts[kind] = {static_cast<int>(kind), names[kind]};
  return texts;
}();
static_assert(std::ranges::find(kind_texts, "", &EnumText::text) == kind_texts.end(),
              "every kind has a name");

constexpr auto flag_texts = numbered({
    "transpose_a",
    "transpose_b",
    "accumulate",
    "accumulate_weights",
    "bias",
    "rms",
    "residual",
    "gated",
    "causal",
    "separate_model",
    "to_shards",
    "to_host",
    "to_device",
    "gelu_tanh",
    "gelu",
    "relu",
    "silu",
});

constexpr auto type_texts = numbered({"f32", "bf16", "f16", "i32", "i8"});

static_assert(flag_texts.size() == num_work_flags);

/// The flag of each Activation.
constexpr std::array activation_flags = {WorkFlag::gelu_tanh, WorkFlag::gelu, WorkFlag::relu,
                                         WorkFlag::silu};
constexpr std::uint32_t activation_bits = [] {
  Work all;
  for (const WorkFlag flag : activation_flags) all.set(flag);
  return all.flags;
}();

template <class Operation, class... All>
concept OneOf = (std::same_as<Operation, All> || ...);
template <class Operation>
concept Elementwise = requires(const Operation& operation) {
  operation.elements();
};

/// Overloads for all operations that take time, so that a new one does not compile before it is
/// given a cost. Collectives, exchanges and passes over elements cost what the catalogue says of
/// them.
class WorkReader {
 public:
  explicit WorkReader(const StepPlan& plan) : plan_(plan) {}
  using Result = std::optional<Work>;

  Result operator()(const OperationOf<OperationKind::order> auto&) const { return std::nullopt; }
  Result operator()(const OperationOf<OperationKind::collective> auto& o) const {
    return collective(*o.traits.work, o.collective(plan_.group_size));
  }
  Result operator()(const OperationOf<OperationKind::exchange> auto& o) const {
    if (!o.over_group || plan_.group_size == 1) return std::nullopt;
    return Work{WorkKind::exchange, DType::f32, DType::f32, 0, 0, 0, 1};
  }

  Result operator()(const Elementwise auto& o) const {
    const Elements all = o.elements();
    return make(*o.traits.work, all.from, all.to, 0, 0, all.count);
  }
  Result operator()(const op::EmbeddingForward& o) const {
    return make(WorkKind::embedding_forward, o.out, o.out, plan_.model.hidden_size, 0, o.rows);
  }
  Result operator()(const op::EmbeddingBackward& o) const {
    return make(WorkKind::embedding_backward, o.d_out, o.d_token_table, plan_.model.hidden_size,
                plan_.model.vocab_size, o.rows)
        .set(WorkFlag::accumulate, o.accumulate_tokens)
        .set(WorkFlag::accumulate_weights, o.accumulate_positions);
  }
  Result operator()(const op::NormForward& o) const {
    return make(WorkKind::norm_forward, o.residual, o.out, plan_.model.hidden_size, 0, o.rows)
        .set(WorkFlag::rms, o.rms)
        .set(WorkFlag::residual, static_cast<bool>(o.x));
  }
  Result operator()(const op::NormBackward& o) const {
    return make(WorkKind::norm_backward, o.d_out, o.d_x, plan_.model.hidden_size, 0, o.rows)
        .set(WorkFlag::rms, o.rms)
        .set(WorkFlag::accumulate, o.accumulate_input)
        .set(WorkFlag::accumulate_weights, o.accumulate_weights);
  }
  Result operator()(const op::Matmul& o) const {
    const WorkKind kind = o.activated        ? WorkKind::matmul_activation_forward
                          : o.pre_activation ? WorkKind::matmul_activation_backward
                          : o.d_bias         ? WorkKind::matmul_bias_backward
                                             : WorkKind::matmul;
    // A is transposed where its rows are tokens: in gradients of weights, whose k counts them.
    Work work =
        o.transpose_a ? make(kind, o.a, o.c, o.m, o.n, o.k) : make(kind, o.a, o.c, o.n, o.k, o.m);
    return work.set(activation_flag(), o.activated || o.pre_activation)
        .set(WorkFlag::transpose_a, o.transpose_a)
        .set(WorkFlag::transpose_b, o.transpose_b)
        .set(WorkFlag::accumulate, o.accumulate)
        .set(WorkFlag::bias, static_cast<bool>(o.bias));
  }
  Result operator()(const op::BiasBackward& o) const {
    return make(WorkKind::bias_backward, o.d_out, o.d_bias, o.width, 0, o.rows)
        .set(WorkFlag::accumulate, o.accumulate);
  }
  Result operator()(const op::Rotary& o) const { return heads(WorkKind::rotary, o.qkv, false); }
  Result operator()(const op::HeadNormForward& o) const {
    return heads(WorkKind::head_norm_forward, o.qkv, o.spans_heads);
  }
  Result operator()(const op::HeadNormBackward& o) const {
    return heads(WorkKind::head_norm_backward, o.d_qkv, o.spans_heads)
        .set(WorkFlag::accumulate_weights, o.accumulate_weights);
  }
  Result operator()(const OneOf<op::AttentionForward, op::AttentionBackward> auto& o) const {
    const ModelSpec& model = plan_.model;
    std::int64_t sequence = plan_.config.sequence_length;
    if (o.window > 0) {
      const double pairs = static_cast<double>(o.window) *
                           (static_cast<double>(sequence) - static_cast<double>(o.window) / 2);
      sequence = std::llround(std::sqrt(2 * pairs));
    }
    return make(*o.traits.work, o.qkv, o.qkv, sequence, model.num_heads * model.head_size,
                plan_.config.micro_batch)
        .set(WorkFlag::causal, model.architecture.objective == Objective::next_token);
  }
  Result operator()(const OneOf<op::ActivationForward, op::ActivationBackward> auto& o) const {
    return elements(*o.traits.work, o.x, o.rows * o.width)
        .set(WorkFlag::gated, o.gated)
        .set(activation_flag());
  }
  Result operator()(const op::CrossEntropy& o) const {
    return make(WorkKind::cross_entropy, o.logits, o.logits, plan_.model.vocab_size, 0, o.rows);
  }
  Result operator()(const op::Copy& o) const {
    const Memory from = tensor(o.x).memory;
    const Memory to = tensor(o.y).memory;
    return make(WorkKind::copy, o.x, o.y, 0, 0, o.count)
        .set(WorkFlag::to_host, to == Memory::host && from == Memory::device)
        .set(WorkFlag::to_device, to == Memory::device && from == Memory::host);
  }
  Result operator()(const op::Reshard& o) const {
    std::int64_t count = 0;
    for (const op::Reshard::Piece& piece : pieces_of(plan_, o)) count += piece.elements;
    return elements(WorkKind::reshard, o.slab, count).set(WorkFlag::to_shards, o.to_shards);
  }

  Result operator()(const op::Quantize& o) const {
    return make(WorkKind::quantize, o.x, o.codes, o.bits, 0, o.count);
  }
  Result operator()(const op::Dequantize& o) const {
    return make(WorkKind::dequantize, o.codes, o.y, o.bits, o.parts, o.count);
  }

  Result operator()(const op::UpdateParameters& o) const {
    std::int64_t state_bytes = 0;
    for (const View& state : {o.master, o.m, o.v})
      if (state) state_bytes += size_bytes(tensor(state).dtype);
    return make(WorkKind::update, o.gradient, o.model ? o.model : o.master, 0, state_bytes, o.count)
        .set(WorkFlag::separate_model, static_cast<bool>(o.model));
  }

 private:
  [[nodiscard]] const PlannedTensor& tensor(const View& view) const {
    return plan_.tensors[static_cast<std::size_t>(view.tensor)];
  }
  [[nodiscard]] WorkFlag activation_flag() const {
    return activation_flags.at(static_cast<std::size_t>(plan_.model.architecture.activation));
  }

  [[nodiscard]] Work make(WorkKind kind, const View& in, const View& out, std::int64_t width,
                          std::int64_t depth, std::int64_t size) const {
    return {kind, tensor(in).dtype, tensor(out).dtype, 0, width, depth, size};
  }
  [[nodiscard]] Work elements(WorkKind kind, const View& data, std::int64_t count) const {
    return make(kind, data, data, 0, 0, count);
  }
  /// One that spans heads has those of q and of k for two heads, as wide as q's and k's mean.
  [[nodiscard]] Work heads(WorkKind kind, const View& qkv, bool spans_heads) const {
    const ModelSpec& model = plan_.model;
    const std::int64_t heads = model.num_heads + model.num_kv_heads;
    return make(kind, qkv, qkv, spans_heads ? model.head_size * heads / 2 : model.head_size,
                spans_heads ? 2 : heads, plan_.config.micro_batch * plan_.config.sequence_length);
  }
  [[nodiscard]] Result collective(WorkKind kind, const op::Collective& all) const {
    if (all.among.size(plan_.group_size) == 1) return std::nullopt;
    const bool is_of_part = all.among.count > 0;
    return make(kind, all.data, all.data, is_of_part ? all.among.count : 0,
                is_of_part ? all.among.stride : 0,
                all.elements * size_bytes(tensor(all.data).dtype));
  }
  const StepPlan& plan_;
};

}  // namespace

const EnumTexts& texts_of(WorkKind) {
  static constexpr EnumTexts texts{kind_texts, "is no kind of work"};
  return texts;
}

const EnumTexts& texts_of(WorkFlag) {
  static constexpr EnumTexts texts{flag_texts, "is no flag of work"};
  return texts;
}

const EnumTexts& texts_of(DType) {
  static constexpr EnumTexts texts{type_texts, "is no type: f32, bf16, f16, i32"};
  return texts;
}

bool is_same_curve(const Work& one, const Work& other) {
  return one.kind == other.kind && one.type == other.type && one.out_type == other.out_type &&
         one.flags == other.flags && one.width == other.width && one.depth == other.depth;
}

std::optional<std::pair<Work, Work>> parts_of(const Work& work) {
  if (!is_product(work.kind) || work.kind == WorkKind::matmul) return std::nullopt;
  Work product = work;
  product.kind = WorkKind::matmul;
  product.flags &= ~activation_bits;
  if (work.kind == WorkKind::matmul_bias_backward) {
    Work sums{WorkKind::bias_backward, work.type, work.out_type, 0, work.width, 0, work.size};
    return std::pair(product, sums.set(WorkFlag::accumulate, work.has(WorkFlag::accumulate)));
  }
  const WorkKind kind = work.kind == WorkKind::matmul_activation_forward
                            ? WorkKind::activation_forward
                            : WorkKind::activation_backward;
  return std::pair(product, Work{kind, work.out_type, work.out_type, work.flags & activation_bits,
                                 0, 0, work.size * work.width});
}

double amount(const Work& work) {
  const auto size = static_cast<double>(work.size);
  const auto width = static_cast<double>(work.width);
  const auto depth = static_cast<double>(work.depth);
  const auto in_bytes = static_cast<double>(size_bytes(work.type));
  const auto out_bytes = static_cast<double>(size_bytes(work.out_type));
  const auto columns = std::max(1.0, width) * std::max(1.0, depth);
  switch (work.kind) {
    case WorkKind::matmul:
    case WorkKind::matmul_activation_forward:
    case WorkKind::matmul_activation_backward:
    case WorkKind::matmul_bias_backward:
      return 2 * size * width * depth;
    case WorkKind::attention_forward:
    case WorkKind::attention_backward: {
      // Two products forward, five backward.
      const double products = work.kind == WorkKind::attention_forward ? 2 : 5;
      return products * 2 * size * width * width * depth * (work.has(WorkFlag::causal) ? 0.5 : 1);
    }
    case WorkKind::embedding_backward:
      return 2 * in_bytes * size * width +
             (work.has(WorkFlag::accumulate) ? 0 : out_bytes * width * depth);
    case WorkKind::update:
      return size * (2 * depth + in_bytes + (work.has(WorkFlag::separate_model) ? out_bytes : 0));
    case WorkKind::tokens:
      return 8 * size;
    case WorkKind::fill:
    case WorkKind::fill_normal:
    case WorkKind::sum:
    case WorkKind::squares:
    case WorkKind::bias_backward:
    case WorkKind::disk_read:
    case WorkKind::disk_write:
      return in_bytes * size * columns;
    case WorkKind::add:
      return (in_bytes + 2 * out_bytes) * size;
    case WorkKind::norm_forward:
      return size * width * (in_bytes * (work.has(WorkFlag::residual) ? 3 : 1) + out_bytes);
    case WorkKind::norm_backward:
      return size * width * (2 * in_bytes + out_bytes * (work.has(WorkFlag::accumulate) ? 2 : 1));
    case WorkKind::activation_forward:
      return size * in_bytes * (work.has(WorkFlag::gated) ? 3 : 2);
    case WorkKind::activation_backward:
      return size * in_bytes * (work.has(WorkFlag::gated) ? 5 : 3);
    case WorkKind::embedding_forward:
    case WorkKind::head_norm_forward:
    case WorkKind::head_norm_backward:
    case WorkKind::rotary:
    case WorkKind::cross_entropy:
    case WorkKind::convert:
    case WorkKind::copy:
    case WorkKind::reshard:
      return size * columns * (in_bytes + out_bytes);
    case WorkKind::quantize:  // read twice: for the scale, and for the codes
      return size * (2 * in_bytes + width / 8);
    case WorkKind::dequantize:
      return size * (depth * width / 8 + out_bytes);
    case WorkKind::all_reduce:
    case WorkKind::reduce:
    case WorkKind::reduce_scatter:
    case WorkKind::all_gather:
    case WorkKind::all_to_all:
    case WorkKind::exchange:
      return size;
  }
  throw LogicError("work is of a known kind");
}

std::optional<Work> work_of(const StepPlan& plan, const Operation& operation) {
  return std::visit(WorkReader(plan), operation);
}

Work work_of_tokens(const StepPlan& plan) {
  const std::int64_t tokens = plan.config.micro_batch * plan.config.sequence_length;
  return {WorkKind::tokens, DType::i32, DType::i32, 0, 0, 0, tokens};
}

}  // namespace dstune
