/// The replay itself: a plan that is broken on purpose is noticed.
#include "replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    TrainingConfig config = tiny_config(2);
    config.overlap_comm = true;
    config.accumulation_steps = 2;
    plan_ = build_step_plan(tiny_gpt2(), config, 2, 0, SomeWorkspaces());
  }

  /// Erases the first step of a kind from the first micro-step.
  template <class Op>
  void erase_first(Stream stream = Stream::compute) {
    auto& steps = plan_.cycle.front().steps;
    const auto found = std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
      return step.stream == stream && std::holds_alternative<Op>(step.operation);
    });
    ASSERT_NE(found, steps.end());
    steps.erase(found);
  }
  void expect_problem(const std::string& words) {
    EXPECT_THAT(Replay(plan_).problems(), Contains(HasSubstr(words)));
  }

  StepPlan plan_;
};

TEST_F(ReplayTest, FindsNothingInAGoodPlan) {
  EXPECT_TRUE(Replay(plan_).problems().empty());
}

TEST_F(ReplayTest, NoticesAReductionThatDoesNotWait) {
  erase_first<op::Wait>(Stream::reduce);
  expect_problem("without an event");
}

TEST_F(ReplayTest, NoticesABucketThatIsFilledDuringItsReduction) {
  erase_first<op::Wait>(Stream::compute);
  expect_problem("without an event");
}

TEST_F(ReplayTest, NoticesAMissingWrite) {
  erase_first<op::EmbeddingForward>();
  expect_problem("read before it is written");
}

TEST_F(ReplayTest, NoticesAMissingRelease) {
  erase_first<op::Release>();
  expect_problem("not released");
}

TEST_F(ReplayTest, NoticesAMissingAcquire) {
  erase_first<op::Acquire>();
  expect_problem("outside its lifetime");
}

TEST_F(ReplayTest, NoticesTensorsThatShareAPlace) {
  const TensorId tensor = std::get<op::Acquire>(plan_.cycle.front().steps[1].operation).tensor;
  plan_.tensors[static_cast<std::size_t>(tensor)].offset_bytes = 0;
  expect_problem("overlaps");
}

TEST_F(ReplayTest, NoticesGradientsOfThePreviousStep) {
  for (Step& step : plan_.cycle.front().steps) {
    if (auto* convert = std::get_if<op::Convert>(&step.operation);
        convert != nullptr && step.stream == Stream::reduce) {
      step.operation = op::Add{convert->y, convert->x, convert->count};
      break;
    }
  }
  expect_problem("own gradients read before it is written");
}

}  // namespace
}  // namespace dstune::test
