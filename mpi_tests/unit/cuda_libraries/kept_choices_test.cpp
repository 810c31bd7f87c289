// A choice by time is taken by later processes and other ranks without being timed, where it
// is the same GPU, library and offer.
#include "libraries/kept_choices.hpp"

#include <string>

#include <gmock/gmock.h>

#include "fake_dnn.hpp"
#include "libraries/library_attention.hpp"
#include "matrix_products_fixture.hpp"

namespace dstune::kernels::test {
namespace {

using cuda::KeptChoices;
using cuda::LibraryAttention;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

TEST(KeptChoicesTest, APlaceIsOneOfAsManyAsAreOffered) {
  KeptChoices kept;
  EXPECT_EQ(kept.find("product", 3), std::nullopt);
  kept.keep("product", 2, 3);
  EXPECT_EQ(kept.find("product", 3), 2U);
  EXPECT_EQ(kept.find("product", 4), std::nullopt);
  EXPECT_EQ(kept.find("another", 3), std::nullopt);
  for (const char* const text :
       {"", "3 of 3", "-1 of 3", "x of 3", "1", "1 of 3 or so", "01 of 3"}) {
    kept.adopt({{"product", text}});
    EXPECT_EQ(kept.find("product", 3), std::nullopt) << text;
  }
}

TEST(KeptChoicesTest, WhatOthersToldIsNotNew) {
  KeptChoices kept;
  kept.keep("one", 0, 2);
  kept.keep("two", 0, 2);
  const std::uint64_t before = kept.revision();
  kept.adopt({{"one", "0 of 2"}});
  EXPECT_EQ(kept.revision(), before);
  EXPECT_THAT(kept.take_new(), ElementsAre(Pair("two", "0 of 2")));
  EXPECT_THAT(kept.take_new(), IsEmpty());
  kept.adopt({{"two", "1 of 2"}});
  EXPECT_NE(kept.revision(), before);
  EXPECT_EQ(kept.find("two", 2), 1U);
}

class KeptProductsTest : public MatrixProductsFixture {
 protected:
  /// The choices of a process of its own, so to say.
  struct Process {
    explicit Process(KeptProductsTest& test)
        : products(&FakeBlas::functions(), test.gpu_, own_kernels, Choice::fastest, &kept) {}
    KeptChoices kept;
    MatrixProducts products;
  };
  /// The algorithm that serves 2×3 with 3×n, and how much was timed for that.
  int served_by(MatrixProducts& products, int n = 2, bool accumulate = false) {
    gpu_.timings = 0;
    const std::vector<float> ones(8, 1.0F);
    alignas(16) float c[8] = {};
    products.run({.m = 2, .n = n, .k = 3, .accumulate = accumulate}, ones.data(), ones.data(),
                 nullptr, c, workspace_.data());
    EXPECT_EQ(c[0], 3.0F);
    return blas_.runs.back();
  }
};

TEST_F(KeptProductsTest, ASecondProcessTimesNothing) {
  set_algorithms({3.0, 1.0, 2.0});
  Process first(*this);
  EXPECT_EQ(served_by(first.products), 1);
  EXPECT_EQ(gpu_.timings, timings_of(3));
  EXPECT_EQ(served_by(first.products, 2, true), 1);
  const CudaChoices told = first.kept.take_new();
  EXPECT_THAT(told, SizeIs(2));
  for (const auto& [what, place] : told) EXPECT_EQ(place, "1 of 3") << what;

  // The same holds where another one is faster now.
  set_algorithms({1.0, 3.0, 2.0});
  Process second(*this);
  second.kept.adopt(told);
  for (const bool accumulates : {false, true}) {
    blas_.runs.clear();
    EXPECT_EQ(served_by(second.products, 2, accumulates), 1);
    EXPECT_EQ(gpu_.timings, 0);
    EXPECT_THAT(blas_.runs, ElementsAre(1));
  }
  EXPECT_THAT(second.kept.take_new(), IsEmpty());
  EXPECT_EQ(served_by(second.products, 1), 0) << "another shape is its own";
  EXPECT_EQ(gpu_.timings, timings_of(3));
}

TEST_F(KeptProductsTest, AnotherVersionGpuOrOfferIsTimedAgain) {
  set_algorithms({3.0, 1.0, 2.0});
  Process first(*this);
  EXPECT_EQ(served_by(first.products), 1);
  const CudaChoices told = first.kept.take_new();
  const auto timings_in_another = [&] {
    Process process(*this);
    process.kept.adopt(told);
    served_by(process.products);
    return gpu_.timings;
  };
  EXPECT_EQ(timings_in_another(), 0);
  blas_.version = 130200;
  EXPECT_EQ(timings_in_another(), timings_of(3));
  blas_.version = 130100;
  gpu_.device_name = "fake GPU 10.0";
  EXPECT_EQ(timings_in_another(), timings_of(3));
  gpu_.device_name = "fake GPU 9.0";
  set_algorithms({3.0, 1.0});
  EXPECT_EQ(timings_in_another(), timings_of(2));
}

TEST_F(KeptProductsTest, AKeptOneThatFailsIsFollowedByWhatIsTimed) {
  set_algorithms({3.0, 1.0, 2.0});
  Process first(*this);
  EXPECT_EQ(served_by(first.products), 1);
  Process second(*this);
  second.kept.adopt(first.kept.take_new());
  blas_.failing = {1};
  EXPECT_EQ(served_by(second.products), 2);
  EXPECT_EQ(gpu_.timings, timings_of(2));
  EXPECT_THAT(second.kept.take_new(), ElementsAre(Pair(testing::_, "2 of 3")));
}

TEST_F(KeptProductsTest, WhatARankHasChosenGivesWayToWhatItIsTold) {
  set_algorithms({1.0, 3.0});
  Process one(*this);
  EXPECT_EQ(served_by(one.products), 0);
  set_algorithms({3.0, 1.0});
  Process other(*this);
  EXPECT_EQ(served_by(other.products), 1);
  other.kept.adopt(one.kept.take_new());
  EXPECT_EQ(served_by(other.products), 0);
  EXPECT_EQ(gpu_.timings, 0);
  EXPECT_THAT(other.kept.take_new(), IsEmpty());
}

TEST_F(KeptProductsTest, SoIsWhetherAProductIsDoneInParts) {
  constexpr std::int64_t ragged = 517, row = 520;
  const MatmulShape shape{.m = 3, .n = ragged, .k = 8, .transpose_b = true, .stride_c = row};
  const std::vector<float> ones(static_cast<std::size_t>(row * ragged), 1.0F);
  std::vector<float> c(static_cast<std::size_t>(shape.m * row));
  for (const double seconds_of_whole : {1.5, 2.5}) {
    // The two parts, of one candidate each, are timed before the whole.
    gpu_.timings = 0;
    gpu_.clock = [&] { return gpu_.timings <= 2 ? 1.0 : seconds_of_whole; };
    Process first(*this);
    first.products.run(shape, ones.data(), ones.data(), nullptr, c.data(), workspace_.data());
    EXPECT_EQ(gpu_.timings, 3);
    Process second(*this);
    second.kept.adopt(first.kept.take_new());
    blas_.runs.clear();
    second.products.run(shape, ones.data(), ones.data(), nullptr, c.data(), workspace_.data());
    EXPECT_EQ(gpu_.timings, 3);
    EXPECT_EQ(blas_.runs.size(), seconds_of_whole > 2 ? 2U : 1U);
  }
}

// A candidate that runs behind another one would find its operands in the cache.
TEST_F(KeptProductsTest, EachTimedRunBeginsWithAnEmptyCache) {
  set_algorithms({3.0, 1.0});
  Process process(*this);
  served_by(process.products);
  EXPECT_EQ(gpu_.filled_bytes, 2 * gpu_.size_of_cache);
  std::string expected;
  for (int timing = 0; timing < timings_of(2); ++timing) expected += "ft";
  EXPECT_EQ(gpu_.events, expected);
}

TEST_F(KeptProductsTest, WithoutMemoryForThatTheCacheStaysAsItIs) {
  set_algorithms({3.0, 1.0});
  gpu_.free_memory_bytes = 4 * gpu_.size_of_cache - 1;
  Process process(*this);
  EXPECT_EQ(served_by(process.products), 1);
  EXPECT_EQ(gpu_.events, std::string(static_cast<std::size_t>(timings_of(2)), 't'));
}

class KeptPlansTest : public testing::Test {
 protected:
  ~KeptPlansTest() override { EXPECT_EQ(dnn_.fault, ""); }

  /// The configuration that does forward, in a process that knows this, and what it has timed.
  int served_by(const CudaChoices& known, Choice choice = Choice::fastest) {
    KeptChoices kept;
    kept.adopt(known);
    LibraryAttention attention(&FakeDnn::functions(), gpu_, choice,
                               LibraryAttention::default_scratch_bytes, &kept);
    const AttentionShape shape{
        .batch = 1, .sequence = 16, .heads = 1, .kv_heads = 1, .head_size = 8, .type = DType::bf16};
    std::vector<char> workspace(attention.workspace_bytes(shape));
    alignas(16) char qkv[16 * 3 * 8 * 2] = {};
    alignas(16) char out[16 * 8 * 2];
    alignas(16) float log_sum_exp[16];
    gpu_.timings = 0;
    attention.forward(shape, out, log_sum_exp, qkv, workspace.data());
    told_ = kept.take_new();
    return dnn_.runs.back();
  }

  FakeDnn dnn_;
  FakeGpu gpu_;
  CudaChoices told_;
};

TEST_F(KeptPlansTest, ASecondProcessTimesNothing) {
  dnn_.configurations = 3;
  gpu_.clock = [this] { return dnn_.runs.back() == 1 ? 1.0 : 2.0; };
  EXPECT_EQ(served_by({}), 1);
  EXPECT_EQ(gpu_.timings, timings_of(3));
  const CudaChoices told = told_;
  EXPECT_THAT(told, ElementsAre(Pair(testing::_, "1 of 3")));
  gpu_.clock = [this] { return dnn_.runs.back() == 2 ? 1.0 : 2.0; };
  EXPECT_EQ(served_by(told), 1);
  EXPECT_EQ(gpu_.timings, 0);
  EXPECT_THAT(told_, IsEmpty());
  // A kept one that fails is followed by what is timed.
  dnn_.failing_runs = {1};
  EXPECT_EQ(served_by(told), 2);
  EXPECT_EQ(gpu_.timings, timings_of(2));
  EXPECT_THAT(told_, ElementsAre(Pair(testing::_, "2 of 3")));
  dnn_.failing_runs = {};
  EXPECT_EQ(served_by(told, Choice::first), 0);
  // Another version, or other candidates, are timed again.
  EXPECT_EQ(served_by(told, Choice::reproducible), 2);
  EXPECT_EQ(gpu_.timings, timings_of(3));
  dnn_.version = 92000;
  EXPECT_EQ(served_by(told), 2);
  EXPECT_EQ(gpu_.timings, timings_of(3));
}

}  // namespace
}  // namespace dstune::kernels::test
