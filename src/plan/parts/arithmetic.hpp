#pragma once
/// What the parts of a micro-step share: its sizes, where parameters and gradients are, and the
/// linear and norm layers.

#include "zero/gradients.hpp"
#include "zero/parameter_source.hpp"

namespace dstune::plan {

/// Everything in elements; `rows` is micro-batch × sequence length.
struct Sizes {
  std::int64_t rows, hidden, heads_width, qkv_width, intermediate, fc_width, vocab;
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

  [[nodiscard]] TensorId activation(const char* name, int layer, std::int64_t elements) const {
    return emitter.acquire(name, layer, Category::activations, emitter.type(), elements);
  }
  [[nodiscard]] TensorId statistics(const char* name, int layer, std::int64_t elements) const {
    return emitter.acquire(name, layer, Category::activations, DType::f32, elements);
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
/// Where DeepSpeed runs the layer, but here its output is not needed: its parameters only.
void pass(const Context& context, const Linear& layer);
void pass(const Context& context, const Norm& norm);
/// d_in = (or +=, where it accumulates) the gradient of the layer's input or, where that is the
/// activation of `pre_activation`, of this.
void linear_backward_input(const Context& context, const Linear& layer, TensorId d_in,
                           TensorId d_out, bool accumulate = false,
                           TensorId pre_activation = no_tensor);
void linear_backward_weights(const Context& context, const Linear& layer, TensorId d_out,
                             TensorId in);

/// Acquires the statistics and `out`; `input` is there already. It becomes residual + x, or is
/// `residual` itself where there is no x.
void norm_forward(const Context& context, Norm& norm, TensorId residual, TensorId x);
/// d_residual += (or =, where it is new) the gradient through the norm. Releases the statistics.
void norm_backward(const Context& context, const Norm& norm, TensorId d_residual, TensorId d_out,
                   bool accumulate_input);

}  // namespace dstune::plan
