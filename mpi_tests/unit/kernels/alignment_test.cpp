// Tensors that begin between the multiples of 16 bytes at which a GPU's wide pieces begin: each of
// an operation's in turn, since one that is forgotten is an address that ends a GPU's context.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

class AlignmentTest : public KernelTest {
 protected:
  using Addresses = std::vector<void*>;

  struct Tensor {
    DType type;
    std::int64_t count;
  };
  [[nodiscard]] Tensor of(std::int64_t count) const { return {type(), count}; }

  /// call(addresses) on tensors at multiples of 16 bytes, and with each in turn an element further:
  /// what they hold then differs by no more than sums do.
  void check(const std::string& what, const std::vector<Tensor>& tensors,
             const std::function<void(const Addresses&)>& call) const {
    SCOPED_TRACE(what);
    const std::vector<Values> expected = after(tensors, tensors.size(), call);
    for (std::size_t moved = 0; moved < tensors.size(); ++moved) {
      const std::vector<Values> actual = after(tensors, moved, call);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        expect_close(actual[i], expected[i], tolerance(),
                     "tensor " + std::to_string(i) + ", moved: " + std::to_string(moved));
      }
    }
  }

 private:
  static std::vector<Values> after(const std::vector<Tensor>& tensors, std::size_t moved,
                                   const std::function<void(const Addresses&)>& call) {
    std::vector<Buffer> buffers;
    buffers.reserve(tensors.size());
    Addresses addresses;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Values values = random_values(tensors[i].count, i);
      if (i == moved) values.insert(values.begin(), 0.0);
      char* const begin = static_cast<char*>(buffers.emplace_back(tensors[i].type, values).data());
      addresses.push_back(begin + (i != moved ? 0 : tensors[i].type == DType::f32 ? 4 : 2));
    }
    call(addresses);
    std::vector<Values> results;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Values& values = results.emplace_back(buffers[i].values());
      if (i == moved) values.erase(values.begin());
    }
    return results;
  }
};

TEST_P(AlignmentTest, OfElementwiseOperationsIsNoMatter) {
  const Table& t = table();
  const std::int64_t count = 40;
  check("activation", {of(count), of(count)}, [&](const Addresses& at) {
    t.activation_forward(type(), Activation::silu, at[0], at[1], count);
  });
  check("activation's slope", {of(count), of(count), of(count)}, [&](const Addresses& at) {
    t.activation_backward(type(), Activation::silu, at[0], at[1], at[2], count);
  });
  check("add", {of(count), {DType::f32, count}},
        [&](const Addresses& at) { t.add(type(), at[0], DType::f32, at[1], count); });
  for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
    check("convert", {{to, count}, of(count)},
          [&](const Addresses& at) { t.convert(to, at[0], type(), at[1], count); });
  }
  check("scale", {of(count)}, [&](const Addresses& at) { t.scale(type(), at[0], 2.0F, count); });
  check("fill", {of(count)},
        [&](const Addresses& at) { t.fill_normal(type(), at[0], 1, 2, 3, count, 1.0); });
  const AdamStep step{.learning_rate = 0.1F,
                      .beta1 = 0.9F,
                      .beta2 = 0.9F,
                      .epsilon = 1.0F,
                      .weight_decay = 0.1F,
                      .bias_correction1 = 0.1F,
                      .bias_correction2 = 0.1F,
                      .gradient_scale = 1.0F,
                      .decoupled_decay = true};
  check("update", {{DType::f32, count}, {DType::f32, count}, of(count), {DType::bf16, count}},
        [&](const Addresses& at) {
          // A second moment is not negative.
          KernelVector<float> v(static_cast<std::size_t>(count), 1.0F);
          t.adam(step,
                 {.master = at[0],
                  .m = at[1],
                  .v = v.data(),
                  .gradient_type = type(),
                  .gradient = at[2],
                  .model_type = DType::bf16,
                  .model = at[3]},
                 count);
          finish_kernels();
        });
}

TEST_P(AlignmentTest, OfRowsIsNoMatter) {
  const Table& t = table();
  const std::int64_t rows = 3, width = 16, whole = rows * width;
  check("SwiGLU", {of(whole), of(2 * whole)}, [&](const Addresses& at) {
    t.gated_forward(type(), Activation::silu, at[0], at[1], rows, width);
  });
  check("SwiGLU's slopes", {of(2 * whole), of(whole), of(2 * whole)}, [&](const Addresses& at) {
    t.gated_backward(type(), Activation::silu, at[0], at[1], at[2], rows, width);
  });
  check("bias", {of(width), of(whole)}, [&](const Addresses& at) {
    Workspace workspace(t.norm_workspace_bytes(width));
    t.bias_backward(type(), at[0], at[1], rows, width, width, true, workspace.data());
    workspace.check();
  });
  const Tokens targets{5, 0, 14};
  check("cross-entropy", {of(whole), {DType::f32, rows}}, [&](const Addresses& at) {
    t.cross_entropy(type(), static_cast<float*>(at[1]), at[0], targets.data(), rows, width - 1,
                    width, 1.0F, {});
    finish_kernels();
  });
  const Tokens tokens{2, 0, 2};
  check("embedding", {of(whole), of(whole), of(whole), of(width)}, [&](const Addresses& at) {
    t.embedding_forward(type(), at[0], at[1], at[2], at[3], tokens.data(), rows, rows, width);
    finish_kernels();
  });
  check("embedding's gradients", {of(whole), of(whole), of(whole)}, [&](const Addresses& at) {
    t.embedding_backward(type(), at[0], at[1], at[2], tokens.data(), rows, rows, width, 3, true,
                         true);
    finish_kernels();
  });
  for (const int bits : {8, 4}) {
    for (const std::size_t offset : {0U, 1U}) {
      check("quantization", {of(whole), of(whole)}, [&](const Addresses& at) {
        KernelVector<std::uint8_t> codes(static_cast<std::size_t>(whole) + offset);
        KernelVector<float> scales(static_cast<std::size_t>(rows));
        t.quantize(type(), bits, codes.data() + offset, scales.data(), at[1], whole, width);
        t.dequantize(type(), bits, at[0], codes.data() + offset, scales.data(), whole, width, 1, 1);
        finish_kernels();
      });
    }
  }
}

TEST_P(AlignmentTest, OfNormsIsNoMatter) {
  const Table& t = table();
  const std::int64_t rows = 2;
  // In registers, and wider.
  for (const std::int64_t width : {std::int64_t{48}, std::int64_t{4104}}) {
    const std::int64_t whole = rows * width;
    KernelVector<float> mean(static_cast<std::size_t>(rows), 0.25F);
    KernelVector<float> rstd(static_cast<std::size_t>(rows), 0.5F);
    check("LayerNorm", {of(whole), of(whole), of(whole), of(whole), of(width), of(width)},
          [&](const Addresses& at) {
            KernelVector<float> centre(2), spread(2);
            t.layernorm_forward(type(), at[0], at[1], centre.data(), spread.data(), at[2], at[3],
                                at[4], at[5], rows, width, 1e-5F);
            finish_kernels();
          });
    check("LayerNorm's gradients",
          {of(whole), of(width), of(width), of(whole), of(whole), of(width)},
          [&](const Addresses& at) {
            Workspace workspace(t.norm_workspace_bytes(width));
            t.layernorm_backward(type(), at[0], at[1], at[2], at[3], at[4], mean.data(),
                                 rstd.data(), at[5], rows, width, true, true, workspace.data());
            workspace.check();
          });
    check("RMSNorm's gradients", {of(whole), of(width), of(whole), of(whole), of(width)},
          [&](const Addresses& at) {
            Workspace workspace(t.norm_workspace_bytes(width));
            t.rmsnorm_backward(type(), at[0], at[1], at[2], at[3], rstd.data(), at[4], 0.0F, rows,
                               width, true, true, workspace.data());
            workspace.check();
          });
  }
}

TEST_P(AlignmentTest, OfHeadsIsNoMatter) {
  const Table& t = table();
  const AttentionShape shape{
      .batch = 1, .sequence = 3, .heads = 2, .kv_heads = 1, .head_size = 16, .type = type()};
  const std::int64_t qkv = 3 * 4 * 16, normed = 3 * 3 * 16;
  check("norm of heads", {of(qkv), of(normed), of(16), of(16)}, [&](const Addresses& at) {
    KernelVector<float> rstd(9);
    t.head_norm_forward(shape, false, at[0], at[1], rstd.data(), at[2], at[3], 0.0F, 1e-5F);
    finish_kernels();
  });
  check("its gradients", {of(qkv), of(16), of(16), of(normed), of(16), of(16)},
        [&](const Addresses& at) {
          KernelVector<float> rstd(9, 0.5F);
          Workspace workspace(t.norm_workspace_bytes(16));
          t.head_norm_backward(shape, false, at[0], at[1], at[2], at[3], rstd.data(), at[4], at[5],
                               0.0F, true, workspace.data());
          workspace.check();
        });
  const KernelVector<double> frequencies(8, 0.5);
  check("rotary", {of(qkv)}, [&](const Addresses& at) {
    t.rotary(shape, 16, at[0], frequencies.data(), 1.0F, false);
    finish_kernels();
  });
}

DSTUNE_FOR_TABLES(AlignmentTest);

}  // namespace
}  // namespace dstune::kernels::test
