#include <algorithm>
#include <cmath>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

struct State {
  Buffer master, m, v, model;
  bool operator==(const State&) const = default;
};

class AdamTest : public KernelTest {
 protected:
  static constexpr std::int64_t count = 32771;
  /// Large enough that a gradient near zero, whose sign is rounding's, moves nothing.
  static constexpr float epsilon = 1e-2F;

  AdamStep step(int number, bool decoupled) const {
    return {.learning_rate = 1e-2F,
            .beta1 = 0.9F,
            .beta2 = 0.95F,
            .epsilon = epsilon,
            .weight_decay = 0.1F,
            .bias_correction1 = static_cast<float>(1.0 - std::pow(0.9, number)),
            .bias_correction2 = static_cast<float>(1.0 - std::pow(0.95, number)),
            .gradient_scale = 0.5F,
            .decoupled_decay = decoupled};
  }

  State start() const {
    return {Buffer(DType::f32, random_values(count, 1)), Buffer(DType::f32, Values(count)),
            Buffer(DType::f32, Values(count)), Buffer(model_type(), count)};
  }

  /// Gradients have the test's type, the model, too, where that is a 16-bit one.
  DType model_type() const { return type() == DType::f32 ? DType::bf16 : type(); }
  void update(State& s, const AdamStep& how, const Buffer& gradient, std::int64_t begin,
              std::int64_t end) const {
    const std::int64_t size = type() == DType::f32 ? 4 : 2;
    void* model = static_cast<std::byte*>(s.model.data()) + 2 * begin;
    table().adam(how, s.master.floats() + begin, s.m.floats() + begin, s.v.floats() + begin, type(),
                 static_cast<const std::byte*>(gradient.data()) + size * begin, type(),
                 type() != DType::f32 ? model : nullptr, end - begin);
  }
};

TEST_P(AdamTest, FollowsTheFormulaOverSteps) {
  for (const bool decoupled : {true, false}) {
    State state = start();
    Values master = state.master.values();
    Values m(count);
    Values v(count);
    for (int number = 1; number <= 3; ++number) {
      const Values gradient = random_values(count, 10 + static_cast<std::uint64_t>(number));
      update(state, step(number, decoupled), typed(gradient), 0, count);
      for (std::size_t i = 0; i < master.size(); ++i) {
        double g = gradient[i] * 0.5;
        if (decoupled) {
          master[i] -= 1e-2 * 0.1 * master[i];
        } else {
          g += 0.1 * master[i];
        }
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        master[i] -= 1e-2 * (m[i] / (1.0 - std::pow(0.9, number))) /
                     (std::sqrt(v[i] / (1.0 - std::pow(0.95, number))) + epsilon);
      }
    }
    expect_close(state.master.values(), master, 1e-5, "master");
    expect_close(state.m.values(), m, 1e-5, "m");
    expect_close(state.v.values(), v, 1e-5, "v");
    if (type() != DType::f32) {
      EXPECT_TRUE(state.model == Buffer(type(), state.master.values()));
    }
  }
}

TEST_P(AdamTest, InPiecesEqualsTheWhole) {
  const Buffer gradient = typed(random_values(count, 11));
  State whole = start();
  update(whole, step(1, true), gradient, 0, count);
  State pieces = start();
  for (std::int64_t begin = 0; begin < count;) {
    const std::int64_t end = std::min(count, begin + 1 + begin / 3);
    update(pieces, step(1, true), gradient, begin, end);
    begin = end;
  }
  EXPECT_TRUE(pieces == whole);
}

TEST_P(AdamTest, DoesNotDependOnThreads) {
  const Buffer gradient = typed(random_values(count, 11));
  expect_same_for_any_threads([&] {
    State state = start();
    update(state, step(1, false), gradient, 0, count);
    return state;
  });
}

DSTUNE_FOR_TABLES(AdamTest);

}  // namespace
}  // namespace dstune::kernels::test
