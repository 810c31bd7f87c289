/// The replay itself: a plan that is broken on purpose is noticed.
#include "replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

StepPlan good_plan() {
  TrainingConfig config = tiny_config(2);
  config.overlap_comm = true;
  config.accumulation_steps = 2;
  return build(tiny_gpt2(), config, 2);
}

/// Erases the first step of a kind from the first micro-step.
template <class Op, Stream stream = Stream::compute>
void erase_first(StepPlan& plan) {
  auto& steps = plan.cycle.front().steps;
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
    return step.stream == stream && std::holds_alternative<Op>(step.operation);
  });
  ASSERT_NE(found, steps.end());
  steps.erase(found);
}

void share_a_place(StepPlan& plan) {
  const TensorId tensor = std::get<op::Acquire>(plan.cycle.front().steps[1].operation).tensor;
  plan.tensors[static_cast<std::size_t>(tensor)].offset_bytes = 0;
}

void add_to_gradients_of_the_step_before(StepPlan& plan) {
  for (Step& step : plan.cycle.front().steps) {
    const auto* convert = std::get_if<op::Convert>(&step.operation);
    if (convert == nullptr || step.stream != Stream::reduce) continue;
    step.operation = op::Add{convert->y, convert->x, convert->count};
    return;
  }
}

TEST(ReplayTest, NoticesWhatIsBroken) {
  struct Broken {
    const char* name;
    void (*damage)(StepPlan&);
    const char* problem;
  };
  for (const auto& [name, damage, problem] :
       {Broken{"reduction without a wait", erase_first<op::Wait, Stream::reduce>,
               "without an event"},
        Broken{"bucket filled during a reduction", erase_first<op::Wait>, "without an event"},
        Broken{"no write", erase_first<op::EmbeddingForward>, "read before it is written"},
        Broken{"no release", erase_first<op::Release>, "not released"},
        Broken{"no acquire", erase_first<op::Acquire>, "outside its lifetime"},
        Broken{"one place for two", share_a_place, "overlaps"},
        Broken{"gradients of the step before", add_to_gradients_of_the_step_before,
               "own gradients read before it is written"}}) {
    SCOPED_TRACE(name);
    StepPlan plan = good_plan();
    EXPECT_TRUE(Replay(plan).problems().empty());
    damage(plan);
    EXPECT_THAT(Replay(plan).problems(), Contains(HasSubstr(problem)));
  }
}

}  // namespace
}  // namespace dstune::test
