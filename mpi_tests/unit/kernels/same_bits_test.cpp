// Where the order of sums does not matter, the CUDA kernels give the bits of the processor's tables
// that fuse products and sums. Two things may differ. A GPU has cosines of its own for rotations,
// and its own powers and inverses are what activations in 16 bits are computed with.
#include <cmath>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

class SameBitsTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    // The one with bf16 instructions takes denormals for zeros.
    reference_ = cpu_table("avx2");
    if (reference_ == nullptr) GTEST_SKIP() << "no processor's table that fuses";
  }

  /// run(table) returns buffers.
  template <class Run>
  void expect_same(const char* what, Run run) const {
    EXPECT_TRUE(run(table()) == run(*reference_)) << what;
  }

  /// Likewise; in 16 bits to the next number that they hold.
  template <class Run>
  void expect_same_or_next(const char* what, Run run) const {
    if (type() == DType::f32) return expect_same(what, run);
    const double step = type() == DType::bf16 ? 0x1p-7 : 0x1p-10;
    const std::vector<Buffer> results = run(table());
    const std::vector<Buffer> wanted = run(*reference_);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Values values = results[i].values();
      const Values others = wanted[i].values();
      for (std::size_t j = 0; j < others.size(); ++j)
        ASSERT_NEAR(values[j], others[j], step * std::abs(others[j]) + 1e-6) << what;
    }
  }

  const Table* reference_ = nullptr;
  static constexpr std::int64_t rows = 9;
};

// Packed and not, in whole packs and not.
constexpr std::int64_t widths[] = {64, 40, 37};

TEST_P(SameBitsTest, Activations) {
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu, Activation::relu, Activation::silu}) {
    for (const std::int64_t count : {1003, 1008}) {
      const Buffer x = typed(random_values(count, 1, 9.0));
      const Buffer d_out = typed(random_values(count, 2));
      expect_same_or_next("an activation", [&](const Table& t) {
        std::vector<Buffer> results{poisoned(count), poisoned(count)};
        t.activation_forward(type(), activation, results[0].data(), x.data(), count);
        t.activation_backward(type(), activation, results[1].data(), d_out.data(), x.data(), count);
        return results;
      });
    }
  }
  for (const std::int64_t width : widths) {
    const Buffer gate_up = typed(random_values(2 * rows * width, 1, 9.0));
    const Buffer d_out = typed(random_values(rows * width, 2));
    expect_same_or_next("swiglu", [&](const Table& t) {
      std::vector<Buffer> results{poisoned(rows * width), poisoned(2 * rows * width)};
      t.gated_forward(type(), Activation::silu, results[0].data(), gate_up.data(), rows, width);
      t.gated_backward(type(), Activation::silu, results[1].data(), d_out.data(), gate_up.data(),
                       rows, width);
      return results;
    });
  }
}

TEST_P(SameBitsTest, Elementwise) {
  for (const std::int64_t count : {1003, 1008}) {
    const Values fine = Buffer(DType::f32, random_values(count, 1, 0.3)).values();
    expect_same("add, scale, fill, convert", [&](const Table& t) {
      std::vector<Buffer> results{typed(fine), Buffer(DType::f32, fine), poisoned(count),
                                  poisoned(count), poisoned(count)};
      t.add(DType::f32, results[1].data(), type(), results[0].data(), count);
      t.scale(DType::f32, results[1].data(), 1.1F, count);
      t.add(type(), results[0].data(), DType::f32, results[1].data(), count);
      t.scale(type(), results[0].data(), 0.7F, count);
      t.fill(type(), results[2].data(), 0.1F, count);
      t.convert(type(), results[3].data(), DType::f32, results[1].data(), count);
      t.fill_normal(type(), results[4].data(), 42, 3, 12345678901, count, 0.02);
      return results;
    });
  }
}

TEST_P(SameBitsTest, Quantization) {
  constexpr std::int64_t group = 40;
  constexpr std::int64_t count = 5 * group;
  constexpr int parts = 3;
  Values values = random_values(parts * count, 1, 3.0);
  values[group + 7] = 65280.0;  // the largest number that is one of bf16 and a half
  values[2 * group] = 1e-7;
  const Buffer x = typed(values);
  // From the first number on and from the second, whose addresses do not allow packs.
  for (const std::int64_t first : {0, 1}) {
    const auto* const from =
        static_cast<const std::byte*>(x.data()) + first * (type() == DType::f32 ? 4 : 2);
    for (const int bits : {8, 4}) {
      expect_same("codes and sums", [&](const Table& t) {
        KernelVector<std::uint8_t> codes(static_cast<std::size_t>(parts * count * bits / 8 + 1));
        KernelVector<float> scales(static_cast<std::size_t>(parts * count / group));
        t.quantize(type(), bits, codes.data() + first, scales.data(), from,
                   parts * count - first * group, group);
        Buffer sums = poisoned(count);
        t.dequantize(type(), bits, sums.data(), codes.data() + first, scales.data(), count, group,
                     parts, 7);
        finish_kernels();
        return std::tuple(codes, scales, sums);
      });
    }
  }
}

TEST_P(SameBitsTest, Embedding) {
  const std::int64_t sequence = 7;
  const std::int64_t all = 3 * sequence;
  const std::int64_t vocabulary = 11;
  const Tokens tokens = random_tokens(all, vocabulary, 1);
  for (const std::int64_t width : widths) {
    const Buffer token_table = typed(random_values(vocabulary * width, 2));
    const Buffer positions = typed(random_values(sequence * width, 3));
    const Buffer d_out = typed(random_values(all * width, 4));
    expect_same("embedding", [&](const Table& t) {
      std::vector<Buffer> results{poisoned(all * width), token_table, positions};
      t.embedding_forward(type(), results[0].data(), token_table.data(), positions.data(), nullptr,
                          tokens.data(), all, sequence, width);
      t.embedding_backward(type(), results[1].data(), results[2].data(), d_out.data(),
                           tokens.data(), all, sequence, width, vocabulary, true, true);
      return results;
    });
  }
}

TEST_P(SameBitsTest, Updates) {
  // From the first element on and from the second, whose addresses do not allow packs.
  for (const std::int64_t first : {0, 1}) {
    const std::int64_t count = 1003;
    const std::int64_t size = type() == DType::f32 ? 4 : 2;
    const Buffer gradient = typed(random_values(count, 4));
    const Values half_steps = random_values(count, 3);
    Values squares;
    for (const double value : half_steps) squares.push_back(value * value);
    const auto run = [&](auto update) {
      return [&, update](const Table& t) {
        std::vector<Buffer> state{Buffer(DType::f32, random_values(count, 1)),
                                  Buffer(DType::f32, half_steps), Buffer(DType::f32, squares),
                                  poisoned(count)};
        update(
            t,
            UpdateTensors{.master = state[0].floats() + first,
                          .m = state[1].floats() + first,
                          .v = state[2].floats() + first,
                          .gradient_type = type(),
                          .gradient = static_cast<const std::byte*>(gradient.data()) + size * first,
                          .model_type = type(),
                          .model = type() == DType::f32
                                       ? nullptr
                                       : static_cast<std::byte*>(state[3].data()) + 2 * first},
            count - first);
        return state;
      };
    };
    for (const bool flag : {false, true}) {
      expect_same("Adam", run([flag](const Table& t, const UpdateTensors& tensors, std::int64_t n) {
                    t.adam({1e-3F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.3F, 0.2F, 0.7F, flag}, tensors, n);
                  }));
      expect_same("Lion", run([flag](const Table& t, const UpdateTensors& tensors, std::int64_t n) {
                    t.lion({1e-3F, 0.9F, 0.95F, 0.1F, 0.7F, flag}, tensors, n);
                  }));
      expect_same("SGD", run([flag](const Table& t, const UpdateTensors& tensors, std::int64_t n) {
                    t.sgd({1e-3F, 0.9F, 0.1F, 0.8F, 0.7F, flag}, tensors, n);
                  }));
      expect_same("Adagrad",
                  run([flag](const Table& t, const UpdateTensors& tensors, std::int64_t n) {
                    t.adagrad({1e-3F, 1e-8F, 0.1F, 0.7F, flag}, tensors, n);
                  }));
    }
  }
}

DSTUNE_FOR_TABLES(SameBitsTest);

}  // namespace
}  // namespace dstune::kernels::test
