// The CPU kernels at the sizes of GPT-2 124M, batch 4 × 64 tokens. Arguments: threads, then 0 for
// fp32, 1 for bf16, 2 for fp16, then what the benchmark names.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {
namespace {

constexpr std::int64_t rows = 256;
constexpr std::int64_t hidden = 768;
constexpr std::int64_t vocabulary = 50257;

DType prepare(const benchmark::State& state) {
  set_cpu_threads(static_cast<int>(state.range(0)));
  return static_cast<DType>(state.range(1));
}

/// Small numbers, the same bits whatever the type: 0x3c00… is about 0.008 as bf16 and as float,
/// 1 as fp16.
std::vector<std::uint32_t> memory(std::int64_t floats) {
  return std::vector<std::uint32_t>(static_cast<std::size_t>(floats), 0x3c003c00);
}

void run_matmul(benchmark::State& state, MatmulShape shape) {
  shape.type = prepare(state);
  shape.out_type = shape.type;
  const Table& table = cpu_table();
  const auto a = memory(shape.m * shape.k);
  const auto b = memory(shape.k * shape.n);
  auto c = memory(shape.m * shape.n);
  std::vector<char> workspace(table.matmul_workspace_bytes(shape));
  for (auto _ : state) {
    table.matmul(shape, a.data(), b.data(), nullptr, c.data(), workspace.data());
  }
  const auto products = static_cast<double>(shape.m * shape.n * shape.k);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * products, benchmark::Counter::kIsIterationInvariantRate);
}

void matmul_forward(benchmark::State& state) {
  run_matmul(state, {.m = rows, .n = state.range(2), .k = hidden, .transpose_b = true});
}
void matmul_input_gradient(benchmark::State& state) {
  run_matmul(state, {.m = rows, .n = hidden, .k = state.range(2)});
}
void matmul_weight_gradient(benchmark::State& state) {
  run_matmul(state, {.m = state.range(2), .n = hidden, .k = rows, .transpose_a = true});
}

/// The MLP's products with their activation: forward, and backward to its input.
void matmul_activation(benchmark::State& state, bool backward) {
  const DType type = prepare(state);
  MatmulShape shape{.m = rows, .n = 4 * hidden, .k = hidden, .type = type, .out_type = type};
  shape.transpose_b = shape.has_bias = !backward;
  const Table& table = cpu_table();
  const auto a = memory(shape.m * shape.k);
  const auto b = memory(shape.k * shape.n);
  const auto bias = memory(shape.n);
  auto c = memory(shape.m * shape.n);
  auto other = c;
  std::vector<char> workspace(table.matmul_workspace_bytes(shape));
  for (auto _ : state) {
    if (backward) {
      table.matmul_activation_backward(shape, Activation::gelu_tanh, a.data(), b.data(),
                                       other.data(), c.data(), workspace.data());
    } else {
      table.matmul_activation_forward(shape, Activation::gelu_tanh, a.data(), b.data(), bias.data(),
                                      c.data(), other.data(), workspace.data());
    }
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(shape.m * shape.n * shape.k),
                         benchmark::Counter::kIsIterationInvariantRate);
}

/// A sequence length; the batch makes up at least `rows` tokens.
void attention(benchmark::State& state) {
  const Table& table = cpu_table();
  const std::int64_t sequence = state.range(2);
  const AttentionShape shape{.batch = sequence < rows ? rows / sequence : 1,
                             .sequence = sequence,
                             .heads = 12,
                             .kv_heads = 12,
                             .head_size = 64,
                             .type = prepare(state)};
  const std::int64_t tokens = shape.batch * sequence;
  const auto qkv = memory(tokens * 3 * hidden);
  auto d_qkv = qkv;
  auto out = memory(tokens * hidden);
  const auto d_out = out;
  std::vector<float> log_sum_exp(static_cast<std::size_t>(tokens * shape.heads));
  std::vector<char> workspace(table.attention_workspace_bytes(shape));
  for (auto _ : state) {
    table.attention_forward(shape, out.data(), log_sum_exp.data(), qkv.data(), workspace.data());
    table.attention_backward(shape, d_qkv.data(), d_out.data(), qkv.data(), out.data(),
                             log_sum_exp.data(), workspace.data());
  }
}

void cross_entropy(benchmark::State& state) {
  const DType type = prepare(state);
  auto logits = memory(rows * vocabulary);
  const std::vector<std::int32_t> targets(rows, 7);
  std::vector<float> losses(rows);
  for (auto _ : state) {
    cpu_table().cross_entropy(type, losses.data(), logits.data(), targets.data(), rows, vocabulary,
                              vocabulary, 1.0F / rows, {});
  }
  state.SetBytesProcessed(state.iterations() * rows * vocabulary * (type == DType::f32 ? 8 : 4));
}

void adam(benchmark::State& state) {
  const DType type = prepare(state);
  constexpr std::int64_t count = 1 << 25;
  std::vector<float> master(count);
  std::vector<float> m(count);
  std::vector<float> v(count);
  const auto gradient = memory(count);
  auto model = memory(count / 2);
  const AdamStep step{1e-4F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.1F, 0.05F, 1.0F, true};
  for (auto _ : state) {
    cpu_table().adam(step,
                     {.master = master.data(),
                      .m = m.data(),
                      .v = v.data(),
                      .gradient_type = type,
                      .gradient = gradient.data(),
                      .model_type = type,
                      .model = type != DType::f32 ? model.data() : nullptr},
                     count);
  }
  // fp32: 16 read and 12 written; bf16: 14 and 14.
  state.SetBytesProcessed(state.iterations() * count * 28);
}

const std::vector<std::int64_t> threads = {1, 2};
const std::vector<std::int64_t> types = {0, 1, 2};
const std::vector<std::int64_t> widths = {hidden, 3 * hidden, 4 * hidden, vocabulary};

BENCHMARK(matmul_forward)->ArgsProduct({threads, types, widths})->UseRealTime();
BENCHMARK(matmul_input_gradient)->ArgsProduct({threads, types, widths})->UseRealTime();
BENCHMARK(matmul_weight_gradient)->ArgsProduct({threads, types, widths})->UseRealTime();
BENCHMARK_CAPTURE(matmul_activation, forward, false)->ArgsProduct({threads, types})->UseRealTime();
BENCHMARK_CAPTURE(matmul_activation, backward, true)->ArgsProduct({threads, types})->UseRealTime();
BENCHMARK(attention)->ArgsProduct({threads, types, {64, 1024}})->UseRealTime();
BENCHMARK(cross_entropy)->ArgsProduct({threads, types})->UseRealTime();
BENCHMARK(adam)->ArgsProduct({threads, types})->UseRealTime();

}  // namespace
}  // namespace dstune::kernels

BENCHMARK_MAIN();
