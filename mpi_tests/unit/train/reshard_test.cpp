#include <bit>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>

#include "executor/dispatch.hpp"

namespace dstune::train {
namespace {

using testing::ElementsAreArray;

// Parameters of 5 and 2 elements over 3 ranks: shards of 2 and 1, so 3 elements a rank.
const std::vector<ReshardPiece> pieces{{0, 5, 0, 2}, {5, 2, 2, 1}};
op::Reshard operation(bool to_shards) {
  return {{}, {}, to_shards, 3, 3, 0, 2};
}

TypedBytes bytes_of(std::vector<float>& elements) {
  return {reinterpret_cast<std::byte*>(elements.data()), DType::f32};
}

TEST(ReshardTest, InterleavesShardsAndPadsThem) {
  std::vector<float> slab{1, 2, 3, 4, 5, 6, 7};
  std::vector<float> shards(9, -1);
  reshard(kernels::cpu_table(), operation(true), pieces, bytes_of(slab), bytes_of(shards));
  EXPECT_THAT(shards, ElementsAreArray({1, 2, 6, 3, 4, 7, 5, 0, 0}));
}

TEST(ReshardTest, PutsParametersTogetherAgain) {
  std::vector<float> slab(8, -1);
  std::vector<float> shards{1, 2, 6, 3, 4, 7, 5, 0, 0};
  reshard(kernels::cpu_table(), operation(false), pieces, bytes_of(slab), bytes_of(shards));
  EXPECT_THAT(slab, ElementsAreArray({1, 2, 3, 4, 5, 6, 7, -1}));
}

TEST(ReshardTest, RanksBeyondTheLastElementHaveOnlyPadding) {
  const std::vector<ReshardPiece> two{{0, 1, 0, 1}, {1, 1, 1, 1}};
  std::vector<float> slab{8, 9};
  std::vector<float> shards(8, -1);
  reshard(kernels::cpu_table(), {{}, {}, true, 4, 2, 0, 2}, two, bytes_of(slab), bytes_of(shards));
  EXPECT_THAT(shards, ElementsAreArray({8, 9, 0, 0, 0, 0, 0, 0}));
}

TEST(ReshardTest, CopiesBetweenElementsOfDifferentSizes) {
  std::vector<float> slab{1, 2, 3, 4, 5, 6, 7};
  std::vector<std::uint16_t> shards(9, 0xFFFF);
  reshard(kernels::cpu_table(), operation(true), pieces, bytes_of(slab),
          {reinterpret_cast<std::byte*>(shards.data()), DType::bf16});
  std::vector<float> values;
  for (const std::uint32_t bits : shards) values.push_back(std::bit_cast<float>(bits << 16));
  EXPECT_THAT(values, ElementsAreArray({1, 2, 6, 3, 4, 7, 5, 0, 0}));
}

}  // namespace
}  // namespace dstune::train
