#include <algorithm>
#include <cmath>
#include <functional>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

struct State {
  Buffer master, m, v, model;
  bool operator==(const State&) const = default;
};

/// One parameter with its moments, in double precision.
struct Parameter {
  double w, m, v;
};

/// An optimizer's update number 1, 2, … by the kernels and by its formula.
struct Optimizer {
  const char* name;
  std::function<void(const Table&, int number, const UpdateTensors&, std::int64_t)> update;
  std::function<void(int number, double gradient, Parameter&)> formula;
};

constexpr float rate = 1e-2F;
constexpr float beta1 = 0.9F;
constexpr float beta2 = 0.95F;
constexpr float decay = 0.1F;
constexpr float scale = 0.5F;
/// Large enough that a gradient near zero, whose sign is rounding's, moves nothing.
constexpr float epsilon = 1e-2F;

Optimizer adam(bool decoupled) {
  return {decoupled ? "AdamW" : "Adam",
          [decoupled](const Table& table, int number, const UpdateTensors& tensors,
                      std::int64_t count) {
            table.adam({.learning_rate = rate,
                        .beta1 = beta1,
                        .beta2 = beta2,
                        .epsilon = epsilon,
                        .weight_decay = decay,
                        .bias_correction1 = static_cast<float>(1 - std::pow(beta1, number)),
                        .bias_correction2 = static_cast<float>(1 - std::pow(beta2, number)),
                        .gradient_scale = scale,
                        .decoupled_decay = decoupled},
                       tensors, count);
          },
          [decoupled](int number, double g, Parameter& p) {
            if (decoupled) {
              p.w -= rate * decay * p.w;
            } else {
              g += decay * p.w;
            }
            p.m = beta1 * p.m + (1 - beta1) * g;
            p.v = beta2 * p.v + (1 - beta2) * g * g;
            p.w -= rate * (p.m / (1 - std::pow(beta1, number))) /
                   (std::sqrt(p.v / (1 - std::pow(beta2, number))) + epsilon);
          }};
}

/// Its decays are such that sums of gradients cancel out nowhere but where all of them are 0.
Optimizer lion(bool rises_at_zero) {
  constexpr float lion1 = 0.8731F;
  constexpr float lion2 = 0.9713F;
  return {
      rises_at_zero ? "Lion" : "LionOnHost",
      [rises_at_zero](const Table& table, int, const UpdateTensors& tensors, std::int64_t count) {
        table.lion({rate, lion1, lion2, decay, scale, rises_at_zero}, tensors, count);
      },
      [rises_at_zero](int, double g, Parameter& p) {
        const double direction = lion1 * p.m + (1 - lion1) * g;
        const bool rises = direction < 0 || (direction == 0 && rises_at_zero);
        p.w = p.w * (1 - rate * decay) + (rises ? rate : -rate);
        p.m = lion2 * p.m + (1 - lion2) * g;
      }};
}

/// momentum 0: none is kept.
Optimizer sgd(const char* name, double momentum, double dampening, bool nesterov) {
  const auto share = [dampening](int number) { return number == 1 ? 1 : 1 - dampening; };
  return {name,
          [=](const Table& table, int number, UpdateTensors tensors, std::int64_t count) {
            if (momentum == 0) tensors.m = nullptr;
            table.sgd({rate, static_cast<float>(momentum), decay, static_cast<float>(share(number)),
                       scale, nesterov},
                      tensors, count);
          },
          [=](int number, double g, Parameter& p) {
            g += decay * p.w;
            if (momentum != 0) {
              p.m = momentum * p.m + share(number) * g;
              g = nesterov ? g + momentum * p.m : p.m;
            }
            p.w -= rate * g;
          }};
}

Optimizer adagrad(bool decays_numerator) {
  return {decays_numerator ? "Adagrad" : "AdagradOnHost",
          [decays_numerator](const Table& table, int, const UpdateTensors& tensors,
                             std::int64_t count) {
            table.adagrad({rate, epsilon, decay, scale, decays_numerator}, tensors, count);
          },
          [decays_numerator](int, double g, Parameter& p) {
            const double decayed = g + decay * p.w;
            p.v += decayed * decayed;
            p.w -= rate * (decays_numerator ? decayed : g) / (std::sqrt(p.v) + epsilon);
          }};
}

const std::vector<Optimizer>& optimizers() {
  static const std::vector<Optimizer> all = {adam(true),
                                             adam(false),
                                             lion(true),
                                             lion(false),
                                             sgd("Sgd", 0, 0, false),
                                             sgd("Momentum", 0.9, 0.3, false),
                                             sgd("Nesterov", 0.9, 0, true),
                                             adagrad(true),
                                             adagrad(false)};
  return all;
}

class OptimizerTest : public KernelTest {
 protected:
  static constexpr std::int64_t count = 32771;

  State start() const {
    return {Buffer(DType::f32, random_values(count, 1)), Buffer(DType::f32, Values(count)),
            Buffer(DType::f32, Values(count)), Buffer(model_type(), count)};
  }

  /// Gradients have the test's type, the model, too, where that is a 16-bit one.
  DType model_type() const { return type() == DType::f32 ? DType::bf16 : type(); }
  void update(State& s, const Optimizer& optimizer, int number, const Buffer& gradient,
              std::int64_t begin, std::int64_t end, const float* factor = nullptr) const {
    const std::int64_t size = type() == DType::f32 ? 4 : 2;
    void* model = static_cast<std::byte*>(s.model.data()) + 2 * begin;
    optimizer.update(table(), number,
                     {.master = s.master.floats() + begin,
                      .m = s.m.floats() + begin,
                      .v = s.v.floats() + begin,
                      .gradient_type = type(),
                      .gradient = static_cast<const std::byte*>(gradient.data()) + size * begin,
                      .model_type = type(),
                      .model = type() != DType::f32 ? model : nullptr,
                      .gradient_scale = factor},
                     end - begin);
  }
};

TEST_P(OptimizerTest, FollowsTheFormulaOverSteps) {
  for (const Optimizer& optimizer : optimizers()) {
    SCOPED_TRACE(optimizer.name);
    State state = start();
    const Values initial = state.master.values();
    std::vector<Parameter> parameters;
    for (const double w : initial) parameters.push_back({w, 0, 0});
    for (int number = 1; number <= 3; ++number) {
      const Values gradient = random_values(count, 10 + static_cast<std::uint64_t>(number));
      update(state, optimizer, number, typed(gradient), 0, count);
      for (std::size_t i = 0; i < parameters.size(); ++i)
        optimizer.formula(number, gradient[i] * scale, parameters[i]);
    }
    Values master;
    Values m;
    Values v;
    for (const Parameter& p : parameters) {
      master.push_back(p.w);
      m.push_back(p.m);
      v.push_back(p.v);
    }
    expect_close(state.master.values(), master, 1e-5, "master");
    expect_close(state.m.values(), m, 1e-5, "m");
    expect_close(state.v.values(), v, 1e-5, "v");
    if (type() != DType::f32) {
      EXPECT_TRUE(state.model == Buffer(type(), state.master.values()));
    }
  }
}

// As DeepSpeed's two kernels: what has had no gradient yet moves all the same.
TEST_P(OptimizerTest, LionMovesWhatHasNoGradient) {
  for (const bool rises : {true, false}) {
    State state = start();
    const Values before = state.master.values();
    update(state, lion(rises), 1, typed(Values(count)), 0, count);
    Values expected;
    for (const double w : before)
      expected.push_back(w * (1 - rate * decay) + (rises ? rate : -rate));
    expect_close(state.master.values(), expected, 1e-6, "master");
  }
}

// The same arithmetic, rounded where it is stored.
TEST_P(OptimizerTest, KeepsStatesIn16Bits) {
  if (type() == DType::f32) GTEST_SKIP() << "of 16-bit types";
  const Values values = random_values(count, 1);
  const Buffer gradient = typed(random_values(count, 11));
  for (const Optimizer& optimizer : optimizers()) {
    for (const DType moments : {DType::f32, type()}) {
      SCOPED_TRACE(optimizer.name);
      Buffer wide(DType::f32, values), wide_m(DType::f32, Values(count)),
          wide_v(DType::f32, Values(count));
      Buffer narrow = typed(values), m(moments, Values(count)), v(moments, Values(count));
      optimizer.update(table(), 1,
                       {.master = wide.data(),
                        .m = wide_m.data(),
                        .v = wide_v.data(),
                        .gradient_type = type(),
                        .gradient = gradient.data()},
                       count);
      optimizer.update(table(), 1,
                       {.master_type = type(),
                        .master = narrow.data(),
                        .moment_type = moments,
                        .m = m.data(),
                        .v = v.data(),
                        .gradient_type = type(),
                        .gradient = gradient.data()},
                       count);
      EXPECT_TRUE(narrow == typed(wide.values()));
      EXPECT_TRUE(m == Buffer(moments, wide_m.values()));
      EXPECT_TRUE(v == Buffer(moments, wide_v.values()));
    }
  }
}

TEST_P(OptimizerTest, InPiecesEqualsTheWhole) {
  const Buffer gradient = typed(random_values(count, 11));
  for (const Optimizer& optimizer : optimizers()) {
    State whole = start();
    update(whole, optimizer, 1, gradient, 0, count);
    State pieces = start();
    for (std::int64_t begin = 0; begin < count;) {
      const std::int64_t end = std::min(count, begin + 1 + begin / 3);
      update(pieces, optimizer, 1, gradient, begin, end);
      begin = end;
    }
    EXPECT_TRUE(pieces == whole) << optimizer.name;
  }
}

// What an earlier kernel has written is as good as a number.
TEST_P(OptimizerTest, TakesTheGradientsScaleFromMemory) {
  const Buffer gradient = typed(random_values(count, 11));
  // Exact in every type, as the scaled gradient is: what differs is who multiplies.
  Values scaled = gradient.values();
  for (double& each : scaled) each *= 0.25 / scale;
  const Buffer other = typed(scaled);
  KernelVector<float> factor{0.25F};
  for (const Optimizer& optimizer : optimizers()) {
    State by_number = start();
    update(by_number, optimizer, 1, other, 0, count);
    State from_memory = start();
    update(from_memory, optimizer, 1, gradient, 0, count, factor.data());
    EXPECT_TRUE(from_memory == by_number) << optimizer.name;
  }
}

TEST_P(OptimizerTest, IsTheSameInAllWays) {
  const Buffer gradient = typed(random_values(count, 11));
  for (const Optimizer& optimizer : optimizers())
    expect_same_in_all_ways([&] {
      State state = start();
      update(state, optimizer, 1, gradient, 0, count);
      return state;
    });
}

DSTUNE_FOR_TABLES(OptimizerTest);

}  // namespace
}  // namespace dstune::kernels::test
