#pragma once
/// The arithmetic of the training step, as one table of plain functions per backend. The executor
/// fetches a table once and calls through it; the CPU table is the reference of every other one.
///
/// Matrices are row-major. `rows` is micro-batch × sequence length (tokens). Pointers marked `T`
/// hold elements of the call's `DType` (float, bfloat16 or IEEE half precision), the others hold
/// what they say. On a processor one function alone allocates from the heap inside a step: a matrix
/// product's first call for a new shape builds and caches its primitive. The header cuda.hpp says
/// what a GPU's libraries keep and make, and when their sums have another order in each run. All
/// other results are deterministic. For the same arguments they do not depend on the number of
/// threads; matrix products are deterministic at an equal number of threads. Tables differ from
/// each other in the last bits (width of sums, fused multiply-add). Workspaces need no alignment.
/// All functions: Local.

#include <cstddef>
#include <cstdint>

namespace dstune::kernels {

enum class DType : std::uint8_t { f32, bf16, f16 };

/// C[m,n] = op(A)·op(B), + C where `accumulate`, or + bias[n], one value a column, where given.
/// Processors refuse both at once: oneDNN 2.2 gives wrong sums then. op(A) is m×k: A is stored m×k,
/// or k×m where `transpose_a`; likewise op(B) k×n. Sums are kept in fp32; A, B, bias have type
/// `type`, C has type `out_type`.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  bool has_bias = false;
  DType type = DType::f32, out_type = DType::f32;
  /// Elements from one stored row of A, and of C, to the next; 0: a row's own. Memory between rows
  /// is neither read nor written.
  std::int64_t stride_a = 0, stride_c = 0;
  bool operator==(const MatmulShape&) const = default;

  [[nodiscard]] std::int64_t row_of_a() const {
    return stride_a > 0 ? stride_a : transpose_a ? m : k;
  }
  [[nodiscard]] std::int64_t row_of_c() const { return stride_c > 0 ? stride_c : n; }
};

/// q, k, v are packed by row: [heads·head_size | kv_heads·head_size | kv_heads·head_size].
/// Query head h reads key head h·kv_heads/heads. Causal
/// queries attend to positions up to their own, with a window to that many of them.
struct AttentionShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool causal = true;
  DType type = DType::f32;
  std::int64_t window = 0;  ///< its own position included; 0: all
  float softmax_scale = 0;  ///< of q·k; 0: 1/sqrt(head_size)
  float softcap = 0;        ///< scores s become softcap·tanh(s/softcap); 0: they stay
};

/// gelu_tanh: 0.5·x·(1 + tanh(sqrt(2/π)·(x + 0.044715·x³))). gelu: x·Φ(x), Φ the normal
/// distribution. relu: max(x, 0), slope 0 at 0. silu: x/(1 + e^−x).
enum class Activation : std::uint8_t { gelu_tanh, gelu, relu, silu, tanh };

/// The loss takes for a logit l: z = l·multiplier, which is above 0, or cap·tanh(z/cap).
struct LogitsForm {
  float multiplier = 1;
  float cap = 0;  ///< 0: none
};

struct AdamStep {
  float learning_rate, beta1, beta2, epsilon, weight_decay;
  float bias_correction1, bias_correction2;  ///< 1 − beta^t of the update's number t = 1, 2, …
  float gradient_scale;                      ///< every gradient is multiplied by this first
  bool decoupled_decay;                      ///< true: AdamW, false: Adam with L2 in the gradient
};
struct LionStep {
  float learning_rate, beta1, beta2, weight_decay;
  float gradient_scale;  ///< as Adam's
  /// If the direction is exactly 0, the parameter grows by the learning rate, or else falls by it:
  /// DeepSpeed's kernels differ.
  bool rises_at_zero;
};
struct SgdStep {
  float learning_rate, momentum, weight_decay;
  float gradient_share;  ///< of the gradient in the momentum: 1 − dampening, 1 in the first update
  float gradient_scale;  ///< as Adam's
  bool nesterov;
};
struct AdagradStep {
  float learning_rate, epsilon, weight_decay;
  float gradient_scale;   ///< as Adam's
  bool decays_numerator;  ///< weight decay is part of the gradient, not of its square alone
};

/// The data that an update reads and writes; `count` elements each. `m` and `v` are null where the
/// optimizer has no such moment. A master in f32 has moments in f32, too. `model` then gets master
/// rounded to nearest even, unless model_type is f32: then model is null and master may be the
/// model's own parameter. A master of 16 bits is updated without a model; the gradient has its
/// type, the moments have it or f32, and what is stored is rounded to nearest even.
struct UpdateTensors {
  DType master_type = DType::f32;
  void* master = nullptr;
  DType moment_type = DType::f32;
  void* m = nullptr;
  void* v = nullptr;
  DType gradient_type = DType::f32;
  const void* gradient = nullptr;
  DType model_type = DType::f32;
  void* model = nullptr;
  /// The factor on gradients, read when the update is done; null: the step's gradient_scale.
  const float* gradient_scale = nullptr;
};

struct Table {
  const char* name;  ///< "avx512_bf16", "avx512", "portable", "cuda", …

  /// The alignment of rows whose width is nobody's choice, as those of logits, for fast products. A
  /// GPU's read and write wide pieces only where all rows begin at multiples of 16 bytes; oneDNN's
  /// fast ones want rows that follow each other.
  std::int64_t row_alignment_bytes = 1;
  /// A note for readers of times of attention in fp32; empty: none.
  const char* fp32_attention_note = "";
  /// Bytes of scratch that a product of this shape needs. Building the primitive may take ms.
  std::size_t (*matmul_workspace_bytes)(const MatmulShape&);
  void (*matmul)(const MatmulShape&, const void* a, const void* b, const void* bias, void* c,
                 void* workspace);
  /// A product that adds to nothing, C as matmul's, and activated[m,n] = activation(C), all of one
  /// type and with rows side by side. The activation may be that of C before it is rounded.
  void (*matmul_activation_forward)(const MatmulShape&, Activation, const void* a, const void* b,
                                    const void* bias, void* c, void* activated, void* workspace);
  /// C = the product, without a bias, times the activation's slope at x[m,n], likewise.
  void (*matmul_activation_backward)(const MatmulShape&, Activation, const void* a, const void* b,
                                     const void* x, void* c, void* workspace);
  /// Computes the gradients of a linear layer from its d_out, which is A[k, m], and input, B[k, n].
  /// C (+)= Aᵀ·B as matmul has it. d_bias[m] (+)= A's column sums as bias_backward has them, though
  /// they may be rounded before they are added to it. All are of one type. workspace: as much as
  /// the one or the other wants.
  void (*matmul_bias_backward)(const MatmulShape&, const void* a, const void* b, void* c,
                               void* d_bias, void* workspace);

  /// out[rows, width] T = token_table[token] + position_table[row % sequence] (null: none)
  /// + type_row[width] (null: none; every token is of that type), rounded once.
  void (*embedding_forward)(DType, void* out, const void* token_table, const void* position_table,
                            const void* type_row, const std::int32_t* tokens, std::int64_t rows,
                            std::int64_t sequence, std::int64_t width);
  /// Adds to (accumulate) or overwrites the whole of d_token_table [vocabulary, width] and
  /// d_position_table [sequence first rows of it] (null: none).
  void (*embedding_backward)(DType, void* d_token_table, void* d_position_table, const void* d_out,
                             const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence,
                             std::int64_t width, std::int64_t vocabulary, bool accumulate_tokens,
                             bool accumulate_positions);

  /// residual_out = residual + x (x null: residual_out must equal residual, nothing is written),
  /// out = (residual_out − mean)·rstd·weight + bias. mean, rstd: float[rows]. Variance is biased.
  void (*layernorm_forward)(DType, void* out, void* residual_out, float* mean, float* rstd,
                            const void* residual, const void* x, const void* weight,
                            const void* bias, std::int64_t rows, std::int64_t width, float epsilon);
  /// d_x += gradient through the norm (d_x already holds the residual stream's gradient), or
  /// = where !accumulate_input. input is the forward's residual_out.
  /// workspace: norm_workspace_bytes(width).
  void (*layernorm_backward)(DType, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                             const void* input, const float* mean, const float* rstd,
                             const void* weight, std::int64_t rows, std::int64_t width,
                             bool accumulate_input, bool accumulate_weights, void* workspace);
  /// out = residual_out·rstd·(offset + weight), rstd = 1/sqrt(mean(residual_out²) + epsilon).
  void (*rmsnorm_forward)(DType, void* out, void* residual_out, float* rstd, const void* residual,
                          const void* x, const void* weight, float offset, std::int64_t rows,
                          std::int64_t width, float epsilon);
  void (*rmsnorm_backward)(DType, void* d_x, void* d_weight, const void* d_out, const void* input,
                           const float* rstd, const void* weight, float offset, std::int64_t rows,
                           std::int64_t width, bool accumulate_input, bool accumulate_weights,
                           void* workspace);
  std::size_t (*norm_workspace_bytes)(std::int64_t width);

  /// RMSNorm of every head of q (weight[head_size] of its own) and of k of a packed qkv in place.
  /// `raw[rows, (heads + kv_heads)·head_size]` T gets what was there, for backward; rstd is
  /// `float[rows, heads + kv_heads]`. With spans_heads it is one norm of all of q
  /// (`weight[heads·head_size]`), and one of all of k (`weight[kv_heads·head_size]`); rstd is
  /// `float[rows, 2]`. `offset` as RMSNorm's.
  void (*head_norm_forward)(const AttentionShape&, bool spans_heads, void* qkv, void* raw,
                            float* rstd, const void* q_weight, const void* k_weight, float offset,
                            float epsilon);
  /// In place in d_qkv, v's part of which stays. workspace: norm_workspace_bytes() of a norm of q.
  void (*head_norm_backward)(const AttentionShape&, bool spans_heads, void* d_qkv, void* d_q_weight,
                             void* d_k_weight, const void* raw, const float* rstd,
                             const void* q_weight, const void* k_weight, float offset,
                             bool accumulate_weights, void* workspace);

  /// Rotates q and k of a packed qkv in place, as Hugging Face's LLaMA does. In each head's first
  /// rotary_size elements, the pair `(i, i + rotary_size/2)` turns by the angle
  /// `position·frequencies[i]` and gets `magnitude` times as long. Its backward, `inverse`, turns
  /// by minus the angle.
  void (*rotary)(const AttentionShape&, std::int64_t rotary_size, void* qkv,
                 const double* frequencies, float magnitude, bool inverse);

  /// out[rows, heads·head_size] T; log_sum_exp float[batch, heads, sequence].
  /// No score matrix is stored on a processor: scratch is attention_workspace_bytes().
  void (*attention_forward)(const AttentionShape&, void* out, float* log_sum_exp, const void* qkv,
                            void* workspace);
  void (*attention_backward)(const AttentionShape&, void* d_qkv, const void* d_out, const void* qkv,
                             const void* out, const float* log_sum_exp, void* workspace);
  std::size_t (*attention_workspace_bytes)(const AttentionShape&);

  /// out may be x; d_x may be d_out.
  void (*activation_forward)(DType, Activation, void* out, const void* x, std::int64_t count);
  void (*activation_backward)(DType, Activation, void* d_x, const void* d_out, const void* x,
                              std::int64_t count);
  /// gate_up[rows, 2·width]: gate first; out[rows, width] = activation(gate)·up, which is silu or
  /// gelu_tanh. d_gate_up may be gate_up.
  void (*gated_forward)(DType, Activation, void* out, const void* gate_up, std::int64_t rows,
                        std::int64_t width);
  void (*gated_backward)(DType, Activation, void* d_gate_up, const void* d_out, const void* gate_up,
                         std::int64_t rows, std::int64_t width);

  /// d_bias[width] T (+)= column sums of d_out[rows, width], summed in fp32; from one row to the
  /// next there are `stride` elements. workspace: norm_workspace_bytes(width).
  void (*bias_backward)(DType, void* d_bias, const void* d_out, std::int64_t rows,
                        std::int64_t width, std::int64_t stride, bool accumulate, void* workspace);

  /// losses[row] = −log softmax(formed logits[row])[target[row]] in fp32; then logits[row] becomes
  /// its gradient, (softmax − onehot)·scale through the form, in place. Logits have type `type`;
  /// from one row to the next there are `stride` elements. A negative target stands for no target:
  /// loss and gradient of that row are 0.
  void (*cross_entropy)(DType, float* losses, void* logits, const std::int32_t* targets,
                        std::int64_t rows, std::int64_t vocabulary, std::int64_t stride,
                        float scale, LogitsForm form);

  /// y[i] += x[i] (in fp32, rounded once).
  void (*add)(DType to, void* y, DType from, const void* x, std::int64_t count);
  /// Copies with conversion from any type to any; equal types are a plain copy. Numbers too large
  /// for f16 become infinite. The ranges do not overlap.
  void (*convert)(DType to, void* y, DType from, const void* x, std::int64_t count);
  /// Quantises as DeepSpeed's ZeRO++ (ops/csrc/includes/quantization_utils.h, symmetric): x,
  /// rounded to half precision, in runs of `group_elements`. `group_elements` is a multiple of 8,
  /// and `count` a multiple of it. A run whose largest magnitude is m has the scale 2m / 2^bits, or
  /// 1 if m is 0. Its codes are x·(2^bits / 2m) to nearest even, at most 2^(bits−1) − 1. bits: 8,
  /// or 4, two codes a byte. A run with a number that is not finite has a scale of NaN.
  void (*quantize)(DType from, int bits, void* codes, float* scales, const void* x,
                   std::int64_t count, std::int64_t group_elements);
  /// y[i] = the sum over p < parts of code[p, i]·scale, each rounded to half precision, divided by
  /// `divisor`; in fp32, rounded once. codes[parts, count], scales[parts, count/group_elements].
  void (*dequantize)(DType to, int bits, void* y, const void* codes, const float* scales,
                     std::int64_t count, std::int64_t group_elements, int parts, int divisor);
  void (*scale)(DType, void* y, float factor, std::int64_t count);
  void (*zero)(void* y, std::size_t bytes);
  /// *sum += the sum of squares, added up in double in an order that the count alone decides, so
  /// equal data gives the equal sum. `sum` is the first of sum_doubles, the others are scratch.
  void (*sum_of_squares)(DType, const void* x, std::int64_t count, double* sum);
  /// Likewise, the plain sum.
  void (*sum_f32)(const float* x, std::int64_t count, double* sum);
  std::int64_t sum_doubles;
  /// *norm = sqrt(the sum of squares[count], in order) / loss_scale, *factor = 1 / (max(1, (norm +
  /// 1e-6) / clip)·loss_scale), in double: DeepSpeed's formula. The same bits from every table.
  void (*clip_factor)(const double* squares, std::int64_t count, double clip, double loss_scale,
                      double* norm, float* factor);

  /// One update of `count` elements, in fp32; docs/inside/reference-step.md has the formulas.
  void (*adam)(const AdamStep&, const UpdateTensors&, std::int64_t count);
  void (*lion)(const LionStep&, const UpdateTensors&, std::int64_t count);
  void (*sgd)(const SgdStep&, const UpdateTensors&, std::int64_t count);
  void (*adagrad)(const AdagradStep&, const UpdateTensors&, std::int64_t count);

  /// Initial weights, docs/inside/reference-step.md: element `first_index + i` of tensor `tensor`
  /// gets `(u0 + u1 + u2 + u3 − 131070)·(standard_deviation / 37837.22723720648)`. u are the four
  /// 16-bit parts of `counter_hash(seed, tensor, first_index + i)`. It is a near-normal number,
  /// since the divisor, `sqrt((2^32 − 1)/3)`, is the standard deviation of the sum. Quotient and
  /// product are doubles, rounded to float and, for the 16-bit types, on from there: such a tensor
  /// is convert() of the f32 one.
  void (*fill_normal)(DType, void* y, std::uint64_t seed, std::uint64_t tensor,
                      std::int64_t first_index, std::int64_t count, double standard_deviation);
  void (*fill)(DType, void* y, float value, std::int64_t count);
};

/// The best table for the processor this runs on; looks once. DSTUNE_CPU_KERNELS in the environment
/// (a table's name) chooses a lower one, for tests; std::invalid_argument where it is unknown here.
const Table& cpu_table();
/// A table by name, or null where this processor or build lacks it.
const Table* cpu_table(const char* name);

/// Name and version of the library behind the matrix products, "oneDNN 2.6.3".
const char* matmul_library();

/// Threads that the calling process's kernels use from now on (at least 1), whichever thread calls
/// them. Sizes of workspaces hold for the number at which they were asked.
void set_cpu_threads(int threads);
int cpu_threads();

/// The 64-bit hash of the counter-based generator, also used for the tokens. Modulo 2^64:
///   `z = seed·0xD1342543DE82EF95 + stream·0xDB4F0B9175AE2165 + (index + 1)·0x9E3779B97F4A7C15`
///   `z = (z xor z>>30)·0xBF58476D1CE4E5B9; z = (z xor z>>27)·0x94D049BB133111EB; z xor z>>31`
/// For seed and stream 0 it is the sequence of splitmix64 (Steele, Lea and Flood, 2014) from state
/// 0.
std::uint64_t counter_hash(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

}  // namespace dstune::kernels
