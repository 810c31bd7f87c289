// The CUDA kernels and libraries at the sizes of GPT-2 124M and 1.5B, 8192 tokens in sequences of
// 1024, by the GPU's clock. Registered where a GPU answers. Bytes are those that must be moved
// once; FLOPs of attention are those of the pairs that a causal query sees.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include "dstune/kernels/cuda.hpp"

namespace dstune::kernels {
namespace {

constexpr std::int64_t sequence = 1024;
constexpr std::int64_t rows = 8 * sequence;
constexpr std::int64_t vocabulary = 50257;
/// Elements from one row of logits to the next, as the plan has it.
constexpr std::int64_t logits_stride = 50304;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// Elements of a storage type on the GPU, all 0.01.
class Memory {
 public:
  Memory(DType type, std::int64_t count) {
    check(cudaMalloc(&data_, static_cast<std::size_t>(count) * (type == DType::f32 ? 4 : 2)));
    cuda_table()->fill(type, data_, 0.01F, count);
  }
  explicit Memory(std::size_t bytes) {
    check(cudaMalloc(&data_, bytes > 0 ? bytes : 1));
    check(cudaMemset(data_, 0, bytes));
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  operator void*() const { return data_; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

struct Work {
  double bytes = 0;
  double flops = 0;
};

/// Times `run`, which has been done before: libraries choose and plan at a shape's first use.
void measure(benchmark::State& state, const Work& work, const std::function<void()>& run) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) run();
  for (auto _ : state) {
    check(cudaEventRecord(begin));
    run();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    state.SetIterationTime(milliseconds * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  using benchmark::Counter;
  if (work.bytes > 0)
    state.counters["bytes/s"] = Counter(work.bytes, Counter::kIsIterationInvariantRate);
  if (work.flops > 0)
    state.counters["FLOP/s"] = Counter(work.flops, Counter::kIsIterationInvariantRate);
}

double size_of(DType type) {
  return type == DType::f32 ? 4 : 2;
}

void matmul(benchmark::State& state, MatmulShape shape) {
  const Table& t = *cuda_table();
  const Memory a(shape.type, (shape.transpose_a ? shape.k : shape.m) * shape.row_of_a());
  const Memory b(shape.type, shape.k * shape.n);
  const Memory bias(shape.type, shape.n);
  const Memory c(shape.out_type, shape.m * shape.row_of_c());
  const Memory workspace(t.matmul_workspace_bytes(shape));
  measure(state,
          {.flops = 2.0 * static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k)},
          [&] { t.matmul(shape, a, b, shape.has_bias ? bias.as<void>() : nullptr, c, workspace); });
}

void matmul_activation(benchmark::State& state, MatmulShape shape, bool backward) {
  const Table& t = *cuda_table();
  shape.transpose_b = shape.has_bias = !backward;
  const Memory a(shape.type, shape.m * shape.k);
  const Memory b(shape.type, shape.k * shape.n);
  const Memory bias(shape.type, shape.n);
  const Memory c(shape.type, shape.m * shape.n);
  const Memory other(shape.type, shape.m * shape.n);
  const Memory workspace(t.matmul_workspace_bytes(shape));
  measure(state,
          {.flops = 2.0 * static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k)},
          [&] {
            if (backward) {
              t.matmul_activation_backward(shape, Activation::gelu_tanh, a, b, other, c, workspace);
            } else {
              t.matmul_activation_forward(shape, Activation::gelu_tanh, a, b, bias, c, other,
                                          workspace);
            }
          });
}

void matmul_bias_backward(benchmark::State& state, const MatmulShape& shape) {
  const Table& t = *cuda_table();
  const Memory a(shape.type, shape.k * shape.m);
  const Memory b(shape.type, shape.k * shape.n);
  const Memory c(shape.type, shape.m * shape.n);
  const Memory d_bias(shape.type, shape.m);
  const Memory workspace(
      std::max(t.matmul_workspace_bytes(shape), t.norm_workspace_bytes(shape.m)));
  measure(state,
          {.flops = 2.0 * static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k)},
          [&] { t.matmul_bias_backward(shape, a, b, c, d_bias, workspace); });
}

void attention(benchmark::State& state, const AttentionShape& s, bool backward) {
  const Table& t = *cuda_table();
  const std::int64_t tokens = s.batch * s.sequence;
  const Memory qkv(s.type, tokens * (s.heads + 2 * s.kv_heads) * s.head_size);
  const Memory d_qkv(s.type, tokens * (s.heads + 2 * s.kv_heads) * s.head_size);
  const Memory out(s.type, tokens * s.heads * s.head_size);
  const Memory d_out(s.type, tokens * s.heads * s.head_size);
  const Memory log_sum_exp(DType::f32, tokens * s.heads);
  const Memory workspace(t.attention_workspace_bytes(s));
  t.attention_forward(s, out, log_sum_exp.as<float>(), qkv, workspace);
  const double pairs =
      static_cast<double>(tokens * s.heads) * static_cast<double>(s.sequence + 1) / 2;
  const double products = backward ? 5 : 2;
  measure(state, {.flops = products * 2 * pairs * static_cast<double>(s.head_size)}, [&] {
    if (backward) {
      t.attention_backward(s, d_qkv, d_out, qkv, out, log_sum_exp.as<float>(), workspace);
    } else {
      t.attention_forward(s, out, log_sum_exp.as<float>(), qkv, workspace);
    }
  });
}

void norm(benchmark::State& state, DType type, std::int64_t width, bool backward) {
  const Table& t = *cuda_table();
  const Memory x(type, rows * width);
  const Memory residual(type, rows * width);
  const Memory out(type, rows * width);
  const Memory weight(type, width);
  const Memory d_weight(type, width);
  const Memory d_bias(type, width);
  const Memory mean(DType::f32, rows);
  const Memory rstd(DType::f32, rows);
  const Memory workspace(t.norm_workspace_bytes(width));
  measure(state, {.bytes = 4.0 * static_cast<double>(rows * width) * size_of(type)}, [&] {
    if (backward) {
      t.layernorm_backward(type, x, d_weight, d_bias, out, residual, mean.as<float>(),
                           rstd.as<float>(), weight, rows, width, true, true, workspace);
    } else {
      t.layernorm_forward(type, out, residual, mean.as<float>(), rstd.as<float>(), residual, x,
                          weight, weight, rows, width, 1e-5F);
    }
  });
}

void activation(benchmark::State& state, DType type, std::int64_t width, bool backward) {
  const Table& t = *cuda_table();
  const std::int64_t count = rows * width;
  const Memory x(type, count);
  const Memory y(type, count);
  measure(state, {.bytes = (backward ? 3.0 : 2.0) * static_cast<double>(count) * size_of(type)},
          [&] {
            if (backward) {
              t.activation_backward(type, Activation::gelu_tanh, y, y, x, count);
            } else {
              t.activation_forward(type, Activation::gelu_tanh, y, x, count);
            }
          });
}

void bias_backward(benchmark::State& state, DType type, std::int64_t width) {
  const Table& t = *cuda_table();
  const Memory d_out(type, rows * width);
  const Memory d_bias(type, width);
  const Memory workspace(t.norm_workspace_bytes(width));
  measure(state, {.bytes = static_cast<double>(rows * width) * size_of(type)},
          [&] { t.bias_backward(type, d_bias, d_out, rows, width, width, false, workspace); });
}

void cross_entropy(benchmark::State& state, DType type) {
  const Table& t = *cuda_table();
  constexpr std::int64_t some_rows = 2048;
  const Memory logits(type, some_rows * logits_stride);
  const Memory losses(DType::f32, some_rows);
  const Memory targets(some_rows * sizeof(std::int32_t));
  measure(state, {.bytes = 2.0 * some_rows * vocabulary * size_of(type)}, [&] {
    t.cross_entropy(type, losses.as<float>(), logits, targets.as<std::int32_t>(), some_rows,
                    vocabulary, logits_stride, 1.0F, {});
  });
}

void embedding_backward(benchmark::State& state, DType type, std::int64_t width) {
  const Table& t = *cuda_table();
  const Memory d_out(type, rows * width);
  const Memory d_tokens(type, vocabulary * width);
  const Memory d_positions(type, sequence * width);
  const Memory tokens(static_cast<std::size_t>(rows) * sizeof(std::int32_t));
  std::string on_host;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto token =
        static_cast<std::int32_t>(counter_hash(1, 2, static_cast<std::uint64_t>(row)) %
                                  static_cast<std::uint64_t>(vocabulary));
    on_host.append(reinterpret_cast<const char*>(&token), sizeof(token));
  }
  check(cudaMemcpy(tokens, on_host.data(), on_host.size(), cudaMemcpyHostToDevice));
  measure(state, {.bytes = static_cast<double>((rows * 2 + vocabulary) * width) * size_of(type)},
          [&] {
            t.embedding_backward(type, d_tokens, d_positions, d_out, tokens.as<std::int32_t>(),
                                 rows, sequence, width, vocabulary, false, false);
          });
}

constexpr std::int64_t parameters = std::int64_t{1} << 27;

void adam(benchmark::State& state, DType type) {
  const Table& t = *cuda_table();
  const Memory master(DType::f32, parameters);
  const Memory m(DType::f32, parameters);
  const Memory v(DType::f32, parameters);
  const Memory gradient(type, parameters);
  const Memory model(type, parameters);
  const AdamStep step{1e-4F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.1F, 0.05F, 1.0F, true};
  const bool has_model = type != DType::f32;
  const double bytes = 24 + size_of(type) + (has_model ? size_of(type) : 0);
  measure(state, {.bytes = bytes * parameters}, [&] {
    t.adam(step,
           {.master = master,
            .m = m,
            .v = v,
            .gradient_type = type,
            .gradient = gradient,
            .model_type = type,
            .model = has_model ? model.as<void>() : nullptr},
           parameters);
  });
}

void sum_of_squares(benchmark::State& state, DType type) {
  const Table& t = *cuda_table();
  const Memory x(type, parameters);
  const Memory sum(static_cast<std::size_t>(t.sum_doubles) * sizeof(double));
  measure(state, {.bytes = parameters * size_of(type)},
          [&] { t.sum_of_squares(type, x, parameters, sum.as<double>()); });
}

void convert(benchmark::State& state, DType type) {
  const Memory x(DType::f32, parameters);
  const Memory y(DType::bf16, parameters);
  const DType to = type == DType::f32 ? DType::bf16 : type;
  measure(state, {.bytes = parameters * (4 + size_of(to))},
          [&] { cuda_table()->convert(to, y, DType::f32, x, parameters); });
}

void quantize(benchmark::State& state, DType type, int bits, bool back) {
  constexpr std::int64_t group = 2048;
  const Table& t = *cuda_table();
  const Memory x(type, parameters);
  const Memory codes(static_cast<std::size_t>(parameters * bits / 8));
  const Memory scales(DType::f32, parameters / group);
  measure(state, {.bytes = parameters * (size_of(type) + bits / 8.0)}, [&] {
    if (back) {
      t.dequantize(type, bits, x, codes, scales.as<float>(), parameters, group, 1, 1);
    } else {
      t.quantize(type, bits, codes, scales.as<float>(), x, parameters, group);
    }
  });
}

template <class Function, class... Arguments>
void add(const std::string& name, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(("cuda/" + name).c_str(), [=](benchmark::State& state) {
    function(state, arguments...);
  })->UseManualTime();
}

void add_products(const std::string& type_name, DType type) {
  for (const std::int64_t hidden : {768, 1600}) {
    for (const std::int64_t wide : {hidden, 3 * hidden, 4 * hidden, vocabulary}) {
      const std::string of = type_name + "/" + std::to_string(hidden) + "x" + std::to_string(wide);
      MatmulShape shape{.type = type, .out_type = type};
      shape.m = rows;
      shape.n = wide;
      shape.k = hidden;
      shape.transpose_b = true;
      shape.has_bias = wide != vocabulary;
      const std::int64_t stride = wide == vocabulary ? logits_stride : wide;
      shape.stride_c = stride;
      add("matmul_forward/" + of, matmul, shape);
      add("matmul_input_gradient/" + of, matmul,
          MatmulShape{.m = rows,
                      .n = hidden,
                      .k = wide,
                      .type = type,
                      .out_type = type,
                      .stride_a = stride});
      add("matmul_weight_gradient/" + of, matmul,
          MatmulShape{.m = wide,
                      .n = hidden,
                      .k = rows,
                      .transpose_a = true,
                      .accumulate = true,
                      .type = type,
                      .out_type = type,
                      .stride_a = stride});
    }
  }
}

void add_all_of(const std::string& type_name, DType type) {
  add_products(type_name, type);
  for (const bool backward : {false, true}) {
    const std::string way = (backward ? "_backward/" : "_forward/") + type_name;
    add("attention" + way + "/12_heads_of_64", attention,
        AttentionShape{8, sequence, 12, 12, 64, true, type, 0}, backward);
    add("attention" + way + "/25_heads_of_64", attention,
        AttentionShape{8, sequence, 25, 25, 64, true, type, 0}, backward);
    add("attention" + way + "/32_heads_of_128_8_keys", attention,
        AttentionShape{2, 4096, 32, 8, 128, true, type, 0}, backward);
    for (const std::int64_t width : {768, 1600}) {
      add("layernorm" + way + "/" + std::to_string(width), norm, type, width, backward);
      add("matmul_activation" + way + "/" + std::to_string(width) + "x" + std::to_string(4 * width),
          matmul_activation,
          MatmulShape{.m = rows, .n = 4 * width, .k = width, .type = type, .out_type = type},
          backward);
      add("gelu" + way + "/" + std::to_string(4 * width), activation, type, 4 * width, backward);
    }
  }
  for (const std::int64_t width : {768, 1600}) {
    add("bias_backward/" + type_name + "/" + std::to_string(4 * width), bias_backward, type,
        4 * width);
    add("matmul_bias_backward/" + type_name + "/" + std::to_string(4 * width), matmul_bias_backward,
        MatmulShape{.m = 4 * width,
                    .n = width,
                    .k = rows,
                    .transpose_a = true,
                    .type = type,
                    .out_type = type});
    add("embedding_backward/" + type_name + "/" + std::to_string(width), embedding_backward, type,
        width);
  }
  add("cross_entropy/" + type_name, cross_entropy, type);
  add("adam/" + type_name, adam, type);
  add("sum_of_squares/" + type_name, sum_of_squares, type);
  add("convert_from_f32/" + type_name, convert, type);
  for (const int bits : {8, 4}) {
    add("quantize/" + type_name + "/" + std::to_string(bits), quantize, type, bits, false);
    add("dequantize/" + type_name + "/" + std::to_string(bits), quantize, type, bits, true);
  }
}

const bool are_added = [] {
  if (num_cuda_devices() == 0) return false;
  add_all_of("bf16", DType::bf16);
  add_all_of("f16", DType::f16);
  add_all_of("f32", DType::f32);
  return true;
}();

}  // namespace
}  // namespace dstune::kernels
