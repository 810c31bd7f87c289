#pragma once
/// Collectives of known values: what each gives, in and out of place.

#include <algorithm>
#include <cstring>

#include "group_fixture.hpp"

namespace dstune::test {

/// Multiples of the group's size, small enough that sums and means are exact in 16 bits, too.
inline float value_of(int rank, std::int64_t i, int size) {
  return static_cast<float>(size * ((rank * 3 + static_cast<int>(i % 5)) % 13 - 6));
}

/// The mean of those that take part.
inline float mean_of(const RankRange& among, std::int64_t i) {
  float sum = 0;
  for (int index = 0; index < among.count; ++index)
    sum += value_of(among.rank(index), i, among.count);
  return sum / static_cast<float>(among.count);
}

inline Elements filled(int rank, std::int64_t count, int size, DType type) {
  Elements elements(type, count);
  for (std::int64_t i = 0; i < count; ++i) elements.set(i, value_of(rank, i, size));
  return elements;
}

inline Elements means(const RankRange& among, std::int64_t first, std::int64_t count, DType type) {
  Elements elements(type, count);
  for (std::int64_t i = 0; i < count; ++i) elements.set(i, mean_of(among, first + i));
  return elements;
}

inline void expect_mean(ProcessGroup& group, const RankRange& among, std::int64_t count,
                        DType type) {
  const RankRange ranks = among.in_group_of(group.size());
  Elements data = filled(group.group_rank(), count, ranks.count, type);
  group.all_reduce_average(data.bytes.data(), count, type, among);
  EXPECT_TRUE(data.bytes == means(ranks, 0, count, type).bytes) << count;
}

inline void expect_scatter(ProcessGroup& group, const RankRange& among, std::int64_t count,
                           DType type) {
  const RankRange ranks = among.in_group_of(group.size());
  const std::int64_t first = count * ranks.index_of(group.group_rank());
  const Elements before = filled(group.group_rank(), count * ranks.count, ranks.count, type);
  const Elements expected = means(ranks, first, count, type);
  Elements in = before;
  Elements out(type, count);
  group.reduce_scatter_average(out.bytes.data(), in.bytes.data(), count, type, among);
  EXPECT_TRUE(out.bytes == expected.bytes) << count;
  EXPECT_TRUE(in.bytes == before.bytes) << count;
  group.reduce_scatter_average(in.at(first), in.bytes.data(), count, type, among);
  EXPECT_TRUE(std::equal(expected.bytes.begin(), expected.bytes.end(), in.at(first))) << count;
}

inline void expect_gather(ProcessGroup& group, const RankRange& among, std::int64_t count,
                          DType type) {
  const RankRange ranks = among.in_group_of(group.size());
  Elements expected(type, count * ranks.count);
  for (std::int64_t i = 0; i < count * ranks.count; ++i)
    expected.set(i, value_of(ranks.rank(static_cast<int>(i / count)), i % count, 1));
  const Elements in = filled(group.group_rank(), count, 1, type);
  Elements out(type, count * ranks.count);
  group.all_gather(out.bytes.data(), in.bytes.data(), count, type, among);
  EXPECT_TRUE(out.bytes == expected.bytes) << count;
  Elements in_place(type, count * ranks.count);
  std::byte* const own = in_place.at(count * ranks.index_of(group.group_rank()));
  if (count > 0) std::memcpy(own, in.bytes.data(), in.bytes.size());
  group.all_gather(in_place.bytes.data(), own, count, type, among);
  EXPECT_TRUE(in_place.bytes == expected.bytes) << count;
}

inline void expect_root(ProcessGroup& group, int root, std::int64_t count, DType type) {
  const Elements before = filled(group.group_rank(), count, group.size(), type);
  const bool is_root = root == group.group_rank();
  const Elements expected = is_root ? means({0, 1, group.size()}, 0, count, type) : before;
  Elements data = before;
  group.reduce_average(data.bytes.data(), count, type, root);
  EXPECT_TRUE(data.bytes == expected.bytes) << count << " to " << root;
}

}  // namespace dstune::test
