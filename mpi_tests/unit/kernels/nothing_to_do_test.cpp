// Sizes of zero: nothing is read, written or launched, and pointers may be null. Only what is
// overwritten, not added to, is set to zero.
#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

class NothingToDoTest : public KernelTest {};

TEST_P(NothingToDoTest, IsDone) {
  const Table& t = table();
  t.activation_forward(type(), Activation::silu, nullptr, nullptr, 0);
  t.activation_backward(type(), Activation::silu, nullptr, nullptr, nullptr, 0);
  t.gated_forward(type(), Activation::silu, nullptr, nullptr, 0, 8);
  t.gated_backward(type(), Activation::silu, nullptr, nullptr, nullptr, 0, 8);
  t.add(type(), nullptr, DType::f32, nullptr, 0);
  t.convert(type(), nullptr, type(), nullptr, 0);
  t.convert(DType::f32, nullptr, DType::bf16, nullptr, 0);
  t.scale(type(), nullptr, 2.0F, 0);
  t.zero(nullptr, 0);
  t.fill(type(), nullptr, 2.0F, 0);
  t.fill_normal(type(), nullptr, 1, 2, 3, 0, 0.02);
  t.cross_entropy(type(), nullptr, nullptr, nullptr, 0, 8, 8, 1.0F, {});
  t.layernorm_forward(type(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                      nullptr, 0, 8, 1e-5F);
  t.embedding_forward(type(), nullptr, nullptr, nullptr, nullptr, nullptr, 0, 1, 8);
  t.adam({}, {}, 0);
  t.lion({}, {}, 0);
  t.sgd({}, {}, 0);
  t.adagrad({}, {}, 0);
  const AttentionShape none{
      .batch = 0, .sequence = 0, .heads = 1, .kv_heads = 1, .head_size = 8, .type = type()};
  t.rotary(none, 8, nullptr, nullptr, 1.0F, false);
  t.attention_forward(none, nullptr, nullptr, nullptr, nullptr);
  KernelVector<double> sum(static_cast<std::size_t>(t.sum_doubles), 0.5);
  t.sum_of_squares(type(), nullptr, 0, sum.data());
  t.sum_f32(nullptr, 0, sum.data());
  finish_kernels();
  EXPECT_EQ(sum[0], 0.5);

  Buffer d_bias = poisoned(8);
  KernelVector<float> workspace(t.norm_workspace_bytes(8) / sizeof(float));
  t.bias_backward(type(), d_bias.data(), nullptr, 0, 8, 8, false, workspace.data());
  EXPECT_EQ(d_bias.values(), Values(8));
  Buffer d_tokens = poisoned(3 * 8);
  t.embedding_backward(type(), d_tokens.data(), nullptr, nullptr, nullptr, 0, 1, 8, 3, false,
                       false);
  EXPECT_EQ(d_tokens.values(), Values(3 * 8));
}

DSTUNE_FOR_TABLES(NothingToDoTest);

}  // namespace
}  // namespace dstune::kernels::test
