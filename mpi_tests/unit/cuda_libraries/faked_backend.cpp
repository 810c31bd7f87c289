// The kernels' tests of what libraries do, on libraries that are fakes.
#include <functional>
#include <new>

#include <gtest/gtest.h>

#include "backend.hpp"
#include "emulator.hpp"
#include "fake_blas.hpp"
#include "fake_dnn.hpp"
#include "fake_gpu.hpp"
#include "libraries/library_attention.hpp"
#include "libraries/matrix_products.hpp"

namespace dstune::kernels {

namespace emulated {
extern const Table table;
void add_bias(const MatmulShape& shape, const void* bias, void* c);
}  // namespace emulated

namespace test {
namespace {

/// Runs call(products), which the library serves with its epilogues where it has them.
void with_products(const std::function<void(cuda::MatrixProducts&)>& call) {
  // What they made lives as long as the process, as the real ones' does.
  static FakeGpu gpu;
  static auto& products = *new cuda::MatrixProducts(
      &FakeBlas::functions(), gpu,
      {emulated::add_bias, emulated::table.activation_forward, emulated::table.activation_backward,
       emulated::table.bias_backward, emulated::table.add},
      cuda::Choice::first);
  FakeBlas blas;
  call(products);
  EXPECT_EQ(blas.fault, "");
  EXPECT_EQ(blas.runs.size(), 1U);
}

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace) {
  with_products(
      [&](cuda::MatrixProducts& products) { products.run(shape, a, b, bias, c, workspace); });
}

void matmul_activation_forward(const MatmulShape& shape, Activation activation, const void* a,
                               const void* b, const void* bias, void* c, void* activated,
                               void* workspace) {
  with_products([&](cuda::MatrixProducts& products) {
    products.run_activation_forward(shape, activation, a, b, bias, c, activated, workspace);
  });
}

void matmul_activation_backward(const MatmulShape& shape, Activation activation, const void* a,
                                const void* b, const void* x, void* c, void* workspace) {
  with_products([&](cuda::MatrixProducts& products) {
    products.run_activation_backward(shape, activation, a, b, x, c, workspace);
  });
}

void matmul_bias_backward(const MatmulShape& shape, const void* a, const void* b, void* c,
                          void* d_bias, void* workspace) {
  with_products([&](cuda::MatrixProducts& products) {
    products.run_bias_backward(shape, a, b, c, d_bias, workspace);
  });
}

/// So little at a time that backward goes piece by piece, by batches and by heads.
constexpr std::int64_t max_scratch_bytes = std::int64_t{4} * 128 * 128 * 2;

/// Of the two forms of backward the first is the faster for one shape, the second for the next.
double time_in_turns() {
  static int timings = 0;
  const int shape = timings / timings_of(2);
  const int timing = timings++ % timings_of(2);
  // Those that follow the first of each are in the order of these.
  const bool is_fast = (timing % 2 == 0) != (timing < 2 && shape % 2 == 1);
  return is_fast ? 1.0 : 2.0;
}

cuda::LibraryAttention& attention() {
  static FakeGpu gpu;
  gpu.clock = time_in_turns;
  static auto& made = *new cuda::LibraryAttention(&FakeDnn::functions(), gpu, cuda::Choice::fastest,
                                                  max_scratch_bytes);
  return made;
}

/// As the CUDA table decides it.
bool has_own_attention(const AttentionShape& shape) {
  return shape.type == DType::f32 || shape.softcap > 0.0F;
}

void attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
                       void* workspace) {
  if (has_own_attention(shape))
    return emulated::table.attention_forward(shape, out, log_sum_exp, qkv, workspace);
  FakeDnn dnn;
  attention().forward(shape, out, log_sum_exp, qkv, workspace);
  EXPECT_EQ(dnn.fault, "");
}

void attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                        const void* qkv, const void* out, const float* log_sum_exp,
                        void* workspace) {
  if (has_own_attention(shape)) {
    return emulated::table.attention_backward(shape, d_qkv, d_out, qkv, out, log_sum_exp,
                                              workspace);
  }
  FakeDnn dnn;
  attention().backward(shape, d_qkv, d_out, qkv, out, log_sum_exp, workspace);
  EXPECT_EQ(dnn.fault, "");
  EXPECT_GT(dnn.executions, 0);
}

Table faked() {
  Table table = emulated::table;
  table.matmul = matmul;
  table.matmul_activation_forward = matmul_activation_forward;
  table.matmul_activation_backward = matmul_activation_backward;
  table.matmul_bias_backward = matmul_bias_backward;
  table.matmul_workspace_bytes = [](const MatmulShape&) {
    return cuda::MatrixProducts::workspace_bytes;
  };
  table.attention_forward = attention_forward;
  table.attention_backward = attention_backward;
  table.attention_workspace_bytes = [](const AttentionShape& shape) {
    return has_own_attention(shape)
               ? emulated::table.attention_workspace_bytes(shape)
               : cuda::LibraryAttention::workspace_bytes(shape, max_scratch_bytes);
  };
  return table;
}

}  // namespace

std::vector<std::string> table_names() {
  return {"faked"};
}

const Table* find_table(const std::string&, std::string&) {
  static const Table table = faked();
  return &table;
}

void* take_memory(std::size_t bytes) {
  return ::operator new(bytes);
}

void give_back_memory(void* memory) {
  ::operator delete(memory);
}

void finish_kernels() {}

bool is_emulated() {
  return false;
}

bool has_library_attention() {
  return true;
}

void run_in_way(int way) {
  dstune::test::set_emulated_order(way - 1);
}

}  // namespace test
}  // namespace dstune::kernels
