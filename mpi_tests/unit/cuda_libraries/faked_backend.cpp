// The kernels' tests of what libraries do, on libraries that are fakes.
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

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace) {
  // What they made lives as long as the process, as the real ones' does.
  static FakeGpu gpu;
  static auto& products = *new cuda::MatrixProducts(&FakeBlas::functions(), gpu,
                                                    {emulated::table.matmul, emulated::add_bias},
                                                    cuda::Choice::fastest);
  FakeBlas blas;
  products.run(shape, a, b, bias, c, workspace);
  EXPECT_EQ(blas.fault, "");
  EXPECT_EQ(blas.runs.size(), 1U);
}

/// So little at a time that backward goes piece by piece, by batches and by heads.
constexpr std::int64_t most_scratch_bytes = std::int64_t{4} * 128 * 128 * 2;

/// Of the two forms of backward the first is the faster for one shape, the second for the next.
double time_in_turns() {
  static int timings = 0;
  return ++timings % 4 < 2 ? 1.0 : 2.0;
}

cuda::LibraryAttention& attention() {
  static FakeGpu gpu;
  gpu.clock = time_in_turns;
  const Table& own = *cpu_table("portable");
  static auto& made = *new cuda::LibraryAttention(
      &FakeDnn::functions(), gpu,
      {own.attention_forward, own.attention_backward, own.attention_workspace_bytes},
      cuda::Choice::fastest, most_scratch_bytes);
  return made;
}

void attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
                       void* workspace) {
  FakeDnn dnn;
  attention().forward(shape, out, log_sum_exp, qkv, workspace);
  EXPECT_EQ(dnn.fault, "");
}

void attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                        const void* qkv, const void* out, const float* log_sum_exp,
                        void* workspace) {
  FakeDnn dnn;
  attention().backward(shape, d_qkv, d_out, qkv, out, log_sum_exp, workspace);
  EXPECT_EQ(dnn.fault, "");
  const bool serves = shape.type != DType::f32 && shape.head_size % 8 == 0 && shape.sequence > 1;
  EXPECT_EQ(dnn.executions > 0, serves);
}

Table faked() {
  Table table = emulated::table;
  table.matmul = matmul;
  table.matmul_workspace_bytes = [](const MatmulShape&) {
    return cuda::MatrixProducts::workspace_bytes;
  };
  table.attention_forward = attention_forward;
  table.attention_backward = attention_backward;
  table.attention_workspace_bytes = [](const AttentionShape& shape) {
    return attention().workspace_bytes(shape);
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

void run_in_way(int way) {
  dstune::test::set_emulated_order(way - 1);
}

}  // namespace test
}  // namespace dstune::kernels
