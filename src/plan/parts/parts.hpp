#pragma once
/// The parts of a micro-step: what they share (its sizes, where parameters and gradients are, the
/// linear and norm layers), a transformer block with its two branches, and the model's two ends.

#include "dstune/base/checked.hpp"
#include "zero/folding.hpp"
#include "zero/gradients.hpp"
#include "zero/parameters.hpp"

namespace dstune::plan {

/// Everything in elements; `rows` is micro-batch × sequence length.
struct Sizes {
  std::int64_t rows, hidden, heads_width, qkv_width, intermediate, fc_width, head_rows;
  std::int64_t targets;   ///< of the micro-batch
  int summed_ranks;       ///< 1: gradients are means over ranks; else the sum of so many
  bool gated;             ///< SwiGLU
  bool fuses_activation;  ///< of the MLP, with the products beside it
  bool rms;               ///< RMSNorm
};

Sizes sizes_of(const ModelSpec& model, const TrainingConfig& config, int group_size);

struct Context {
  Emitter& emitter;
  ParameterSource& parameters;
  GradientSink& gradients;
  const ModelSpec& model;
  const TrainingConfig& config;
  Sizes sizes;
  /// The model's layers that stand for others, too; null where each stands for itself.
  const LayerFold* fold = nullptr;

  /// New tensors [rows, width], statistics in fp32.
  [[nodiscard]] TensorId activation(const char* name, int layer, std::int64_t width) const {
    return emitter.acquire(name, layer, Category::activations, emitter.type(), elements(width));
  }
  [[nodiscard]] TensorId statistics(const char* name, int layer, std::int64_t width = 1) const {
    return emitter.acquire(name, layer, Category::activations, DType::f32, elements(width));
  }

 private:
  [[nodiscard]] std::int64_t elements(std::int64_t width) const {
    return checked_product("activations of a micro-batch", sizes.rows, width);
  }
};

/// out[rows, outputs] = in[rows, inputs]·weight^T + bias.
struct Linear {
  int unit;
  ParameterRole weight, bias;
  std::int64_t inputs, outputs;
};

/// A norm layer and what its backward needs.
struct Norm {
  int unit = 0;
  ParameterRole weight{}, bias{};
  TensorId input = no_tensor;  ///< the residual stream after the addition
  TensorId mean = no_tensor, rstd = no_tensor;
  TensorId out = no_tensor;
};

void linear_forward(const Context& context, const Linear& layer, TensorId out, TensorId in);
/// The activation of `out`, which it gets, too, as a new tensor.
TensorId linear_activation_forward(const Context& context, const Linear& layer, TensorId out,
                                   TensorId in);
/// Emits only the use of a layer's parameters: DeepSpeed runs the layer, but here nobody needs its
/// output.
void pass(const Context& context, const Linear& layer);
void pass(const Context& context, const Norm& norm);
/// d_in = (or +=, where it accumulates) the gradient of the layer's input or, where that is the
/// activation of `pre_activation`, of this.
void linear_backward_input(const Context& context, const Linear& layer, TensorId d_in,
                           TensorId d_out, bool accumulate = false,
                           TensorId pre_activation = no_tensor);
void linear_backward_weights(const Context& context, const Linear& layer, TensorId d_out,
                             TensorId in);
/// Both: the gradient of `in`, in a new tensor or, where one is given, added to `d_in`. Releases
/// `in` and d_out.
TensorId linear_backward(const Context& context, const Linear& layer, TensorId d_out, TensorId in,
                         TensorId d_in = no_tensor);

/// Acquires the statistics and `out`; `input` is there already. It becomes residual + x, or is
/// `residual` itself where there is no x.
void norm_forward(const Context& context, Norm& norm, TensorId residual, TensorId x);
/// Makes a new tensor of this layer for residual + x, and releases x.
void norm_forward_of_sum(const Context& context, Norm& norm, int layer, TensorId residual,
                         TensorId x);
/// d_residual += (or =, where it is new) the gradient through the norm. Releases the statistics.
void norm_backward(const Context& context, const Norm& norm, TensorId d_residual, TensorId d_out,
                   bool accumulate_input);
/// The gradient of the norm's input as a new tensor of this name and layer. Releases that input and
/// d_out, too.
TensorId norm_backward_anew(const Context& context, const Norm& norm, const char* name, int layer,
                            TensorId d_out);

/// q, k and v from one product, their norm and rotation, attention, and the projection of its
/// result.
class Attention {
 public:
  Attention(const Context& context, int layer);

  /// The projection's result for `in`, which backward needs again.
  TensorId forward(TensorId in);
  /// Computes again all that backward needs, without the result.
  void forward_again(TensorId in);
  void release_saved();
  /// Releases the tensors that forward_again makes anew with selective recompute.
  void release_cheap();
  /// The gradient of `in` from that of the result: in a new tensor, or added to `d_in` where one is
  /// given. Releases `in` and what was kept.
  TensorId backward(TensorId d_out, TensorId in, TensorId d_in = no_tensor);

 private:
  void forward_for_backward(TensorId in);
  void make_heads();
  void head_norm_forward();
  void head_norm_backward(TensorId d_qkv);

  const Context& context_;
  int layer_, unit_;
  std::int64_t window_;
  bool keeps_raw_;  ///< the product's result, where the heads' norms are computed again
  bool rotates_;
  Linear qkv_layer_, projection_layer_;
  // Kept for backward. Norm and rotation are in place in heads_: that is qkv_ or, where the raw
  // product is kept, a copy of it.
  TensorId qkv_ = no_tensor, heads_ = no_tensor, attention_ = no_tensor, log_sum_exp_ = no_tensor;
  TensorId raw_ = no_tensor, head_rstd_ = no_tensor;  // of the heads' norm
};

/// A product, the activation, and a product back.
class Mlp {
 public:
  Mlp(const Context& context, int layer);

  /// The result for `in`, which backward needs again.
  TensorId forward(TensorId in);
  /// Computes again all that backward needs, without the result.
  void forward_again(TensorId in);
  void release_saved();
  /// Releases the tensors that forward_again makes anew with selective recompute.
  void release_cheap();
  /// Returns the same as Attention's.
  TensorId backward(TensorId d_out, TensorId in, TensorId d_in = no_tensor);
  /// Likewise in a new tensor, but `in` stays.
  TensorId backward_keeping(TensorId d_out, TensorId in);

 private:
  void forward_for_backward(TensorId in);
  void activate();
  /// The gradient of fc_. Releases what was kept.
  TensorId projection_backward(TensorId d_out);

  const Context& context_;
  int layer_;
  Linear fc_layer_, fc_projection_layer_;
  // Kept for backward.
  TensorId fc_ = no_tensor, activated_ = no_tensor;
};

/// The residual stream between blocks: what has been added up, and what the next norm adds.
struct Running {
  TensorId residual = no_tensor;
  TensorId x = no_tensor;         ///< none before the first block, and after norms
  bool release_residual = false;  ///< by who takes it over: no backward needs it
};

/// Multiplies a tensor [rows, hidden] in place. Emits nothing for a factor of 1.
void multiply(const Context& context, TensorId x, double factor);

/// Norms and branches, put together as the model's BlockKind says.
class Block {
 public:
  Block(const Context& context, int layer);

  /// Takes over `running` (x is released, the residual where it is to be) and returns the block's
  /// own.
  Running forward(const Running& running);
  /// Takes over the gradient of the block's output and returns that of its input.
  TensorId backward(TensorId d_out);
  /// The tensor that is kept if the whole block is computed again.
  [[nodiscard]] TensorId& input() { return norms_last_ ? input_ : norm1_.input; }

 private:
  void first_norm(const Running& running);
  /// The MLP's input.
  TensorId second_norm_of_parallel();
  Running branches();
  /// The results of branches, by what they are added with.
  TensorId attended(TensorId in);
  TensorId fed(TensorId in);
  /// x, or the result of its own norm.
  TensorId after_branch(Norm& norm, TensorId x);
  void add_into(TensorId sum, TensorId x);
  /// A branch whose norm comes last: the norm's result with the stream `input` in it.
  void end_branch(Norm& norm, TensorId input, TensorId x);
  Running norms_last_forward(TensorId input);
  void forward_again();
  void forward_again_with_norms_last();
  void release_saved();
  void release_cheap();
  void sequential_backward(TensorId d_residual);
  void parallel_backward(TensorId d_residual);
  TensorId post_norm_backward(TensorId d_out);
  void branch_norm_backward(TensorId d_residual);
  /// The gradient of a branch's result from that of the sum: another tensor, or the same one.
  TensorId d_branch(const Norm& norm, TensorId d_residual);
  /// The gradient of the norm's input, which is released, as a new tensor.
  TensorId through(const Norm& norm, TensorId d_residual);
  void release_branch(TensorId d_branch, TensorId d_residual);
  void norm_backward_into(const Norm& norm, TensorId d_residual, TensorId d_norm);

  const Context& context_;
  int layer_, unit_;
  BlockKind kind_;
  bool norms_last_;  ///< of a branch: post_norm, branch_norm
  double multiplier_;
  bool shares_norm_;
  Recompute recompute_;

  // Kept for backward. A whole block that is computed again keeps only its input, from forward on:
  // norm1_.input, or input_ if norms come after their branch.
  Norm norm1_, norm2_, branch_norm1_, branch_norm2_;
  TensorId input_ = no_tensor;
  Attention attention_;
  Mlp mlp_;
};

/// The model's last part: final norm, the head's transform, head and loss, forward and
/// backward at once, so that the logits of only a chunk of rows exist at a time. Takes over both
/// tensors of `running`; returns the gradient of the residual stream. Begins backward of the
/// gradients; with tied embeddings unit 0's gradients stay open.
TensorId emit_head(const Context& context, const Running& running, MicroStep micro);

/// Forward and backward, from the embeddings to the last gradient.
void emit_micro_step(const Context& context, MicroStep micro);

}  // namespace dstune::plan
