#pragma once
/// A group that makes sure that every rank calls the same collectives: what was called so far rides
/// on each exchange of numbers, of which a step has one at least.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune::test {

class MatchedGroup : public ProcessGroup {
 public:
  /// `group` outlives it.
  explicit MatchedGroup(ProcessGroup& group)
      : ProcessGroup(group.group_rank(), group.world_ranks()), group_(group) {}

  [[nodiscard]] bool is_recordable() const override { return group_.is_recordable(); }
  [[nodiscard]] Waiter watched(const Waiter& waiter) const override {
    return group_.watched(waiter);
  }
  void all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                  const RankRange& among) override {
    note(op == Reduction::sum ? Call::all_reduce_sum : Call::all_reduce_average, count, type,
         among);
    group_.all_reduce(data, count, type, op, among);
  }
  void reduce_average(void* data, std::int64_t count, DType type, int root) override {
    note(Call::reduce_average, count, type, {}, root);
    group_.reduce_average(data, count, type, root);
  }
  void reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank, DType type,
                              const RankRange& among) override {
    note(Call::reduce_scatter_average, count_per_rank, type, among);
    group_.reduce_scatter_average(out, in, count_per_rank, type, among);
  }
  void all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override {
    note(Call::all_gather, count_per_rank, type, among);
    group_.all_gather(out, in, count_per_rank, type, among);
  }
  void all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override {
    note(Call::all_to_all, count_per_rank, type, among);
    group_.all_to_all(out, in, count_per_rank, type, among);
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    note(Call::exchange, static_cast<std::int64_t>(mine.size()), DType::f32);
    std::vector<double> sent(mine.begin(), mine.end());
    sent.push_back(static_cast<double>(called_ >> 11));  // as many bits as a double holds exactly
    const std::vector<double> received = group_.exchange(sent);
    for (std::size_t rank = 0; rank < world_ranks().size(); ++rank) {
      const auto theirs = received.begin() + static_cast<std::ptrdiff_t>(rank * sent.size());
      std::copy_n(theirs, mine.size(),
                  all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size()));
      require(theirs[static_cast<std::ptrdiff_t>(mine.size())] == sent.back(),
              "the ranks called different collectives");
    }
  }

 private:
  enum class Call {
    all_reduce_average,
    all_reduce_sum,
    reduce_average,
    reduce_scatter_average,
    all_gather,
    all_to_all,
    exchange
  };

  /// Parts of the group begin at different ranks, but are alike.
  void note(Call call, std::int64_t count, DType type, const RankRange& among = {}, int root = 0) {
    require(among.count == 0 || among.contains(group_rank()), "a rank takes part in its own calls");
    for (const std::int64_t value :
         {static_cast<std::int64_t>(call), count, static_cast<std::int64_t>(type),
          static_cast<std::int64_t>(among.stride), static_cast<std::int64_t>(among.count),
          static_cast<std::int64_t>(root)})
      called_ = (called_ ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15U + 1;
  }

  ProcessGroup& group_;
  std::uint64_t called_ = 0;
};

}  // namespace dstune::test
