#include <algorithm>
#include <cstring>

#include "dstune/group/process_group.hpp"

namespace dstune {
void SelfGroup::copy(void* out, const void* in, std::int64_t count, DType type) {
  if (out == in || count == 0) return;
  if (queues_ != nullptr) return queues_->copy(out, in, count * size_bytes(type));
  std::memcpy(out, in, static_cast<std::size_t>(count * size_bytes(type)));
}

void SelfGroup::all_reduce_average(void*, std::int64_t, DType, const RankRange&) {}
void SelfGroup::all_reduce_sum(void*, std::int64_t, DType) {}
void SelfGroup::reduce_average(void*, std::int64_t, DType, int) {}

void SelfGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                       DType type, const RankRange&) {
  copy(out, in, count_per_rank, type);
}

void SelfGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                           const RankRange&) {
  copy(out, in, count_per_rank, type);
}

void SelfGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                           const RankRange&) {
  copy(out, in, count_per_rank, type);
}

void SelfGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  std::ranges::copy(mine, all.begin());
}

}  // namespace dstune
