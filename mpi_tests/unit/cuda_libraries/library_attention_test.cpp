// How cuDNN is used: which shapes, what is kept, and what happens where it refuses. That its graphs
// are attention is shown by the kernels' own tests, which run on it here, too.
#include "libraries/library_attention.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/kernels/cuda.hpp"
#include "fake_dnn.hpp"
#include "fake_gpu.hpp"
#include "libraries/candidates.hpp"

namespace dstune::kernels::test {
namespace {

using cuda::Choice;
using cuda::LibraryAttention;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LibraryAttentionTest : public testing::Test {
 protected:
  LibraryAttentionTest() {
    gpu_.clock = [this] {
      return seconds_.at(static_cast<std::size_t>(dnn_.runs.back())) +
             (dnn_.adds_up ? seconds_to_add_up_ : 0.0);
    };
  }
  ~LibraryAttentionTest() override { EXPECT_EQ(dnn_.fault, ""); }

  LibraryAttention made(Choice choice = Choice::reproducible,
                        std::int64_t max_scratch_bytes = LibraryAttention::default_scratch_bytes) {
    return {&FakeDnn::functions(), gpu_, choice, max_scratch_bytes};
  }

  /// Both ways, with tensors that begin so many bytes after a multiple of 16, statistics another
  /// number.
  void run(LibraryAttention& attention, const AttentionShape& shape, std::size_t shift = 0,
           std::size_t shift_of_statistics = 0) {
    const std::int64_t rows = shape.batch * shape.sequence;
    const std::int64_t qkv_row = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    const auto room = [&](std::int64_t elements) {
      return std::vector<char>(static_cast<std::size_t>(elements * 4) + 32);
    };
    const auto at = [&](std::vector<char>& memory) {
      const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
      return memory.data() + (16 - address % 16) % 16 + shift;
    };
    auto qkv = room(rows * qkv_row);
    auto d_qkv = qkv;
    auto out = room(rows * shape.heads * shape.head_size);
    auto d_out = out;
    std::vector<float> statistics(static_cast<std::size_t>(rows * shape.heads) + 4);
    float* const log_sum_exp = statistics.data() + shift_of_statistics / sizeof(float);
    std::vector<char> workspace(LibraryAttention::workspace_bytes(shape));
    const auto note_refusal = [&](auto call) {
      try {
        call();
      } catch (const CudaOutOfMemory&) {
        throw;
      } catch (const std::runtime_error& error) {
        refusals_.emplace_back(error.what());
      }
    };
    note_refusal(
        [&] { attention.forward(shape, at(out), log_sum_exp, at(qkv), workspace.data()); });
    note_refusal([&] {
      attention.backward(shape, at(d_qkv), at(d_out), at(qkv), at(out), log_sum_exp,
                         workspace.data());
    });
  }

  static constexpr AttentionShape small{
      .batch = 2, .sequence = 8, .heads = 4, .kv_heads = 2, .head_size = 8, .type = DType::bf16};
  /// A configuration for each, whose plans take so long.
  void set_configurations(std::vector<double> seconds) {
    dnn_.configurations = static_cast<int>(seconds.size());
    seconds_ = std::move(seconds);
  }

  FakeDnn dnn_;
  FakeGpu gpu_;
  std::vector<double> seconds_ = {1.0, 1.0, 1.0};
  double seconds_to_add_up_ = 0.0;
  std::vector<std::string> refusals_;
};

TEST_F(LibraryAttentionTest, PlansAreMadeOnceForAShapeAndDevice) {
  LibraryAttention attention = made();
  run(attention, small);
  run(attention, small);
  EXPECT_EQ(dnn_.plans, 2);
  EXPECT_EQ(dnn_.executions, 4);
  AttentionShape other = small;
  other.window = 3;
  run(attention, other);
  EXPECT_EQ(dnn_.plans, 4);
  other.window = small.sequence;
  run(attention, other);
  EXPECT_EQ(dnn_.plans, 4) << "of a window that hides nothing";
  gpu_.device_number = 1;
  run(attention, small);
  EXPECT_EQ(dnn_.plans, 6);
  EXPECT_THAT(refusals_, IsEmpty());
}

TEST_F(LibraryAttentionTest, BackwardGoesPieceByPieceWhereScoresAreMany) {
  const std::int64_t head_bytes = 128 * 128 * 2;
  for (const auto& [heads_at_a_time, pieces] :
       {std::pair{8, 1}, {7, 2}, {4, 2}, {3, 4}, {2, 4}, {1, 4}, {0, 4}}) {
    LibraryAttention attention = made(Choice::reproducible, heads_at_a_time * head_bytes);
    dnn_.executions = 0;
    run(attention, small);
    EXPECT_EQ(dnn_.executions, 1 + pieces) << heads_at_a_time;
  }
  // The other form has the gradient of the queries twice, in fp32.
  LibraryAttention adding = made(Choice::fastest, 4 * (2 * 128 * small.head_size * 4));
  dnn_.executions = 0;
  run(adding, small);
  run(adding, small);
  EXPECT_TRUE(dnn_.adds_up);
  EXPECT_EQ(dnn_.executions, 1 + (2 + 4) * runs_of_finalist + 2 + 1 + 2) << "timed, and done twice";
}

TEST_F(LibraryAttentionTest, WhatTheLibraryHasNotIsRefused) {
  const auto with = [](auto change) {
    AttentionShape shape = small;
    change(shape);
    return shape;
  };
  const AttentionShape shapes[] = {
      with([](AttentionShape& s) { s.head_size = 12; }),
      with([](AttentionShape& s) { s.head_size = 264; }),
      with([](AttentionShape& s) { s.sequence = 1; }),
      with([](AttentionShape& s) {
        s.causal = false;
        s.window = 3;
      }),
  };
  LibraryAttention attention = made();
  for (const AttentionShape& shape : shapes) run(attention, shape);
  EXPECT_THAT(refusals_, SizeIs(8));
  run(attention, small, 2);
  run(attention, small, 0, sizeof(float));
  EXPECT_THAT(refusals_, SizeIs(12));
  EXPECT_EQ(dnn_.plans, 0);
}

TEST_F(LibraryAttentionTest, StatisticsBeginWhereTheGraphsSay) {
  // Pieces of one head each, of seven floats.
  AttentionShape odd = small;
  odd.sequence = 7;
  for (const AttentionShape& shape : {small, odd}) {
    LibraryAttention attention = made(Choice::reproducible, 0);
    run(attention, shape);
    EXPECT_EQ(dnn_.statistics_alignment, shape.sequence == 7 ? 4 : 16);
  }
  LibraryAttention attention = made();
  run(attention, odd);
  EXPECT_EQ(dnn_.statistics_alignment, 16) << "in one piece";
}

TEST_F(LibraryAttentionTest, SoIsWhatAVersionDoesWrong) {
  LibraryAttention attention = made();
  dnn_.version = 91001;
  run(attention, small);
  EXPECT_THAT(refusals_, SizeIs(2));
  // Backward with a last tile that is not full.
  dnn_.version = 91500;
  run(attention, small);
  EXPECT_THAT(refusals_, SizeIs(3));
  AttentionShape whole_tiles = small;
  whole_tiles.sequence = 128;
  run(attention, whole_tiles);
  EXPECT_THAT(refusals_, SizeIs(3));
}

TEST_F(LibraryAttentionTest, ARefusalNamesTheShape) {
  LibraryAttention attention = made();
  dnn_.failing = {0};
  AttentionShape shape = small;
  shape.sequence = 24;
  run(attention, shape);
  EXPECT_THAT(refusals_,
              ElementsAre(AllOf(HasSubstr("forward of 2 x 24 tokens with 4 heads of 8 elements"),
                                HasSubstr("status 3000")),
                          HasSubstr("backward of 2 x 24 tokens")));
  dnn_.failing = {};
  run(attention, small);
  EXPECT_THAT(refusals_, SizeIs(2));
  dnn_.fails_to_execute = true;
  run(attention, small);
  EXPECT_THAT(refusals_.back(), HasSubstr("status 5000"));
}

TEST_F(LibraryAttentionTest, TheFirstPlanThatCanBeMadeIsTaken) {
  dnn_.configurations = 3;
  dnn_.failing = {0, 1};
  LibraryAttention attention = made();
  run(attention, small);
  EXPECT_EQ(dnn_.plans, 2);
  EXPECT_THAT(refusals_, IsEmpty());

  dnn_.failing = {0, 1, 2};
  LibraryAttention refused = made();
  run(refused, small);
  run(refused, small);
  EXPECT_THAT(refusals_, SizeIs(4));
}

TEST_F(LibraryAttentionTest, AFewPlansAreTimedOnceAndTheFastestIsKept) {
  set_configurations({3.0, 1.0, 2.0, 0.5});
  LibraryAttention attention = made();
  run(attention, small);
  EXPECT_EQ(dnn_.plans, 2 * 3);
  EXPECT_EQ(gpu_.timings, 2 * timings_of(3));
  dnn_.runs.clear();
  run(attention, small);
  EXPECT_THAT(dnn_.runs, ElementsAre(1, 1));
  EXPECT_EQ(gpu_.timings, 2 * timings_of(3));
  EXPECT_THAT(refusals_, IsEmpty());
}

TEST_F(LibraryAttentionTest, BackwardIsTimedWithAllItsPieces) {
  set_configurations({2.0, 1.0});
  LibraryAttention attention = made(Choice::reproducible, 2 * 128 * 128 * 2);
  run(attention, small);
  // All candidates, forward and the four of backward, and then all there is to do.
  EXPECT_EQ(dnn_.executions, 2 * (1 + 4) * runs_of_finalist + 1 + 4);
}

TEST_F(LibraryAttentionTest, TheFasterFormOfBackwardIsKept) {
  for (const auto& [seconds, adds_up] : {std::pair{-0.5, true}, {0.5, false}}) {
    seconds_to_add_up_ = seconds;
    LibraryAttention attention = made(Choice::fastest);
    run(attention, small);
    run(attention, small);
    EXPECT_EQ(dnn_.adds_up, adds_up);
    LibraryAttention reproducible = made();
    run(reproducible, small);
    EXPECT_FALSE(dnn_.adds_up);
  }
  EXPECT_THAT(refusals_, IsEmpty());
}

TEST_F(LibraryAttentionTest, TheFirstChoiceMakesOnePlanAndNeedsNoClock) {
  set_configurations({3.0, 1.0});
  LibraryAttention attention = made(Choice::first);
  run(attention, small);
  EXPECT_EQ(dnn_.plans, 2);
  EXPECT_THAT(dnn_.runs, ElementsAre(0, 0));
  EXPECT_EQ(gpu_.timings, 0);
}

TEST_F(LibraryAttentionTest, NothingIsTimedWhileAGraphIsRecorded) {
  set_configurations({3.0, 1.0});
  LibraryAttention attention = made();
  gpu_.recording = true;
  run(attention, small);
  EXPECT_THAT(dnn_.runs, ElementsAre(0, 0));
  gpu_.recording = false;
  run(attention, small);
  EXPECT_EQ(gpu_.timings, 2 * timings_of(2));
  EXPECT_EQ(dnn_.runs.back(), 1);
}

TEST_F(LibraryAttentionTest, APlanThatFailsIsFollowedByTheNext) {
  set_configurations({1.0, 2.0, 3.0});
  dnn_.failing_runs = {0};
  LibraryAttention attention = made();
  run(attention, small);
  EXPECT_EQ(dnn_.runs.back(), 1);
  dnn_.failing_runs = {1};
  dnn_.runs.clear();
  run(attention, small);
  EXPECT_THAT(dnn_.runs, Each(2));
  EXPECT_THAT(refusals_, IsEmpty());
}

TEST_F(LibraryAttentionTest, PlansThatNeedMoreThanWasPromisedAreLeftOut) {
  dnn_.further_bytes = std::int64_t{1} << 30;
  LibraryAttention attention = made();
  run(attention, small);
  EXPECT_THAT(refusals_, SizeIs(2));
}

TEST_F(LibraryAttentionTest, GradientsOfSharedKeysAreWithinThePromise) {
  AttentionShape shape = small;
  shape.batch = 1;
  shape.sequence = shape.head_size = 128;
  shape.kv_heads = 1;
  LibraryAttention attention = made();
  run(attention, shape);
  EXPECT_THAT(refusals_, IsEmpty());
}

TEST_F(LibraryAttentionTest, APlanThatFailsIsNotTriedAgain) {
  LibraryAttention attention = made();
  run(attention, small);
  dnn_.fails_to_execute = true;
  run(attention, small);
  dnn_.fails_to_execute = false;
  run(attention, small);
  EXPECT_THAT(refusals_, SizeIs(4));
}

TEST_F(LibraryAttentionTest, AFailureAtAnyCallLeavesNothingBehind) {
  int calls = 1;
  for (dnn_.failing_call = -1; dnn_.failing_call < calls; ++dnn_.failing_call) {
    dnn_.calls = dnn_.executions = 0;
    refusals_.clear();
    {
      LibraryAttention attention = made();
      run(attention, small);
    }
    if (dnn_.failing_call < 0) {
      calls = dnn_.calls;
      EXPECT_EQ(dnn_.executions, 2);
    } else {
      EXPECT_THAT(refusals_, SizeIs(1)) << "after a failure of call " << dnn_.failing_call;
      EXPECT_EQ(dnn_.executions, 1);
    }
    EXPECT_EQ(dnn_.alive, 0) << "after a failure of call " << dnn_.failing_call;
  }
  EXPECT_GT(calls, 500);
}

TEST_F(LibraryAttentionTest, AFailureForWantOfMemoryIsNoRefusal) {
  set_configurations({2.0, 1.0});
  LibraryAttention attention = made();
  dnn_.fails_to_execute = true;
  gpu_.free_memory_bytes = std::size_t{1} << 20;
  EXPECT_THROW(run(attention, small), CudaOutOfMemory);
  dnn_.fails_to_execute = false;
  gpu_.free_memory_bytes = std::size_t{1} << 40;
  run(attention, small);
  EXPECT_THAT(refusals_, IsEmpty());
  EXPECT_THAT(dnn_.runs.back(), 1);
}

TEST_F(LibraryAttentionTest, NorIsOneOfTheLibrarysOwnAllocation) {
  dnn_.failing_allocations = true;
  LibraryAttention attention = made();
  EXPECT_THROW(run(attention, small), CudaOutOfMemory);
  dnn_.failing_allocations = false;
  run(attention, small);
  EXPECT_THAT(refusals_, IsEmpty());
}

}  // namespace
}  // namespace dstune::kernels::test
