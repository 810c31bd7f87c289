#include "shared_memory_group.hpp"

#include <algorithm>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr std::size_t line_bytes = 64;
// The size is of the order of a second-level cache: what was copied in is read before it leaves.
constexpr std::size_t preferred_slot_bytes = std::size_t{1} << 20;
// Below this much reading, one phase more costs more than reducing everything everywhere.
constexpr std::int64_t direct_bytes = std::int64_t{128} << 10;

std::int64_t slice_elements(std::int64_t count, int size, DType type) {
  const std::int64_t per_line = static_cast<std::int64_t>(line_bytes) / size_bytes(type);
  const std::int64_t even = (count + size - 1) / size;
  return (even + per_line - 1) / per_line * per_line;
}

}  // namespace

SharedMemoryGroup::SharedMemoryGroup(SharedNode& node, std::span<const int> local_ranks,
                                     std::vector<int> world_ranks, int group_rank,
                                     std::uint64_t attempt, Waiter waiter)
    : ProcessGroup(group_rank, std::move(world_ranks)),
      membership_(node.join(local_ranks, group_rank, attempt, waiter)),
      waiter_(std::move(waiter)),
      slot_bytes_(std::min(preferred_slot_bytes, node.staging_bytes() / 2) / line_bytes *
                  line_bytes),
      parts_(static_cast<std::size_t>(size())) {
  require(slot_bytes_ / line_bytes >= static_cast<std::size_t>(size()),
          "too little shared memory for so large a group");
}

std::byte* SharedMemoryGroup::slot(int rank, int index) const {
  return membership_->staging(rank) + static_cast<std::size_t>(index) * slot_bytes_;
}

std::int64_t SharedMemoryGroup::chunk_elements(DType type) const {
  return static_cast<std::int64_t>(slot_bytes_) / size_bytes(type);
}

template <class Body>
void SharedMemoryGroup::guarded(Body&& body) {
  membership_->check_usable();
  try {
    body();
  } catch (...) {
    membership_->fail();
    throw;
  }
}

void SharedMemoryGroup::wait_for_ranks(const RankRange& ranks, std::uint64_t phases,
                                       const char* what) const {
  for (int index = 0; index < ranks.count; ++index)
    membership_->wait_for(ranks.rank(index), phases, waiter_, what);
}

template <class CopyIn, class Finish>
void SharedMemoryGroup::for_chunks(const Call& call, std::int64_t chunk_count, CopyIn&& copy_in,
                                   Finish&& finish) {
  require(call.ranks.contains(group_rank()), "a rank takes part in its own calls");
  const auto prepare = [&](std::int64_t first) {
    Chunk chunk{first, std::min(chunk_count, call.count - first), next_slot_};
    if (chunk.count <= 0) return chunk;
    next_slot_ = 1 - next_slot_;
    const Free& free = slot_free_[static_cast<std::size_t>(chunk.slot)];
    wait_for_ranks(free.readers, free.phase, "waiting for staging memory");
    copy_in(chunk);
    membership_->publish();
    chunk.copied_phase = membership_->phases();
    return chunk;
  };
  Chunk next = prepare(0);
  while (next.count > 0) {
    const Chunk chunk = next;
    next = prepare(chunk.first + chunk.count);
    finish(chunk);
    membership_->publish_read();
    slot_free_[static_cast<std::size_t>(chunk.slot)] = {call.ranks, membership_->phases()};
  }
}

void SharedMemoryGroup::reduce_directly(std::byte* data, const Chunk& chunk, const Call& call) {
  for (int index = 0; index < call.size(); ++index) {
    const int rank = call.ranks.rank(index);
    part(index) = rank == group_rank() ? data : slot(rank, chunk.slot);
  }
  sum_and_divide(data, parts(call), call.divisor, chunk.count, call.type, call.write);
}

void SharedMemoryGroup::reduce_own_slice(const Chunk& chunk, std::int64_t slice_count,
                                         const Call& call) {
  const std::int64_t first = std::min(own_index(call) * slice_count, chunk.count);
  const std::int64_t count = std::min(slice_count, chunk.count - first);
  for (int index = 0; index < call.size(); ++index)
    part(index) = slot(call.ranks.rank(index), chunk.slot) + as_bytes(first, call.type);
  // Nobody else reads this slice of the own slot before it is published.
  sum_and_divide(slot(group_rank(), chunk.slot) + as_bytes(first, call.type), parts(call),
                 call.divisor, count, call.type, Write::cached);
}

void SharedMemoryGroup::gather_slices(std::byte* data, const Chunk& chunk, std::int64_t slice_count,
                                      const Call& call) {
  const std::uint64_t reduced_phase = membership_->phases();
  for (int i = 0; i < call.size(); ++i) {
    const int index = (own_index(call) + i) % call.size();
    const int rank = call.ranks.rank(index);
    const std::int64_t first = std::min(index * slice_count, chunk.count);
    const std::int64_t count = std::min(slice_count, chunk.count - first);
    if (count == 0) continue;
    membership_->wait_for(rank, reduced_phase, waiter_, "waiting for a reduced slice");
    copy_bytes(data + as_bytes(first, call.type),
               slot(rank, chunk.slot) + as_bytes(first, call.type), as_bytes(count, call.type),
               call.write);
  }
}

void SharedMemoryGroup::reduce(void* data, const Call& call, std::optional<int> root) {
  auto* const bytes = static_cast<std::byte*>(data);
  const DType type = call.type;
  const bool receives = !root || *root == group_rank();
  const auto copy_in = [&](const Chunk& chunk) {
    copy_bytes(slot(group_rank(), chunk.slot), bytes + as_bytes(chunk.first, type),
               as_bytes(chunk.count, type), Write::cached);
  };
  const auto finish = [&](const Chunk& chunk) {
    std::byte* const target = bytes + as_bytes(chunk.first, type);
    const bool directly =
        call.size() == 2 || chunk.count * size_bytes(type) * call.size() <= direct_bytes;
    if (directly) {
      if (!receives) return;
      wait_for_ranks(call.ranks, chunk.copied_phase, "waiting for data to reduce");
      reduce_directly(target, chunk, call);
      return;
    }
    const std::int64_t slice_count = slice_elements(chunk.count, call.size(), type);
    wait_for_ranks(call.ranks, chunk.copied_phase, "waiting for data to reduce");
    reduce_own_slice(chunk, slice_count, call);
    membership_->publish_read();
    if (receives) gather_slices(target, chunk, slice_count, call);
  };
  guarded([&] { for_chunks(call, chunk_elements(type), copy_in, finish); });
}

SharedMemoryGroup::Call SharedMemoryGroup::call_of(const RankRange& among, std::int64_t count,
                                                   DType type) const {
  return {among.in_group_of(size()), count, type, write_of(as_bytes(count, type))};
}

SharedMemoryGroup::Call SharedMemoryGroup::call_of_parts(const RankRange& among, std::int64_t count,
                                                         DType type) const {
  const RankRange ranks = among.in_group_of(size());
  return {ranks, count, type, write_of(as_bytes(count * ranks.count, type))};
}

void SharedMemoryGroup::all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                                   const RankRange& among) {
  Call call = call_of(among, count, type);
  if (op == Reduction::sum) call.divisor = 1;
  reduce(data, call, std::nullopt);
}

void SharedMemoryGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  reduce(data, call_of({}, count, type), root);
}

void SharedMemoryGroup::copy_in_parts(const void* in, const Chunk& chunk, const Call& call,
                                      std::int64_t piece) {
  std::byte* const own_slot = slot(group_rank(), chunk.slot);
  for (int i = 1; i < call.size(); ++i) {
    const int index = (own_index(call) + i) % call.size();
    copy_bytes(own_slot + as_bytes(index * piece, call.type),
               static_cast<const std::byte*>(in) + call.place(index, chunk.first),
               as_bytes(chunk.count, call.type), Write::cached);
  }
}

void SharedMemoryGroup::copy_out_parts(void* out, const Chunk& chunk, const Call& call,
                                       std::int64_t first, const char* what) {
  for (int i = 1; i < call.size(); ++i) {
    const int index = (own_index(call) + i) % call.size();
    const int rank = call.ranks.rank(index);
    membership_->wait_for(rank, chunk.copied_phase, waiter_, what);
    copy_bytes(static_cast<std::byte*>(out) + call.place(index, chunk.first),
               slot(rank, chunk.slot) + as_bytes(first, call.type),
               as_bytes(chunk.count, call.type), call.write);
  }
}

void SharedMemoryGroup::reduce_scatter_average(void* out, const void* in,
                                               std::int64_t count_per_rank, DType type,
                                               const RankRange& among) {
  const Call call = call_of_parts(among, count_per_rank, type);
  const std::int64_t piece = chunk_elements(type) / call.size();
  const int own = own_index(call);
  const auto copy_in = [&](const Chunk& chunk) { copy_in_parts(in, chunk, call, piece); };
  const auto finish = [&](const Chunk& chunk) {
    wait_for_ranks(call.ranks, chunk.copied_phase, "waiting for data to reduce");
    for (int index = 0; index < call.size(); ++index)
      part(index) = slot(call.ranks.rank(index), chunk.slot) + as_bytes(own * piece, type);
    part(own) = static_cast<const std::byte*>(in) + call.place(own, chunk.first);
    sum_and_divide(static_cast<std::byte*>(out) + as_bytes(chunk.first, type), parts(call),
                   call.divisor, chunk.count, type, call.write);
  };
  guarded([&] { for_chunks(call, piece, copy_in, finish); });
}

void SharedMemoryGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank,
                                   DType type, const RankRange& among) {
  const Call call = call_of_parts(among, count_per_rank, type);
  const auto copy_in = [&](const Chunk& chunk) {
    const auto* const mine = static_cast<const std::byte*>(in) + as_bytes(chunk.first, type);
    copy_bytes(slot(group_rank(), chunk.slot), mine, as_bytes(chunk.count, type), Write::cached);
    auto* const place = static_cast<std::byte*>(out) + call.place(own_index(call), chunk.first);
    if (place != mine) copy_bytes(place, mine, as_bytes(chunk.count, type), call.write);
  };
  const auto finish = [&](const Chunk& chunk) {
    copy_out_parts(out, chunk, call, 0, "waiting for data to gather");
  };
  guarded([&] { for_chunks(call, chunk_elements(type), copy_in, finish); });
}

void SharedMemoryGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank,
                                   DType type, const RankRange& among) {
  const Call call = call_of_parts(among, count_per_rank, type);
  const std::int64_t piece = chunk_elements(type) / call.size();
  const int own = own_index(call);
  const auto copy_in = [&](const Chunk& chunk) {
    copy_in_parts(in, chunk, call, piece);
    const std::size_t place = call.place(own, chunk.first);
    copy_bytes(static_cast<std::byte*>(out) + place, static_cast<const std::byte*>(in) + place,
               as_bytes(chunk.count, type), call.write);
  };
  const auto finish = [&](const Chunk& chunk) {
    copy_out_parts(out, chunk, call, own * piece, "waiting for data of all");
  };
  guarded([&] { for_chunks(call, piece, copy_in, finish); });
}

void SharedMemoryGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  require(mine.size() <= max_exchange_numbers, "too many numbers for an exchange");
  require(all.size() == mine.size() * static_cast<std::size_t>(size()), "room for all numbers");
  guarded([&] {
    const auto index = static_cast<std::size_t>(std::exchange(next_numbers_, 1 - next_numbers_));
    wait_for_ranks({0, 1, size()}, numbers_free_phase_[index], "waiting for an exchange");
    std::copy(mine.begin(), mine.end(), membership_->control(group_rank()).numbers[index]);
    membership_->publish();
    const std::uint64_t written_phase = membership_->phases();
    for (int rank = 0; rank < size(); ++rank) {
      membership_->wait_for(rank, written_phase, waiter_, "waiting for an exchange");
      const double* const numbers = membership_->control(rank).numbers[index];
      std::copy_n(numbers, mine.size(), all.data() + static_cast<std::size_t>(rank) * mine.size());
    }
    membership_->publish_read();
    numbers_free_phase_[index] = membership_->phases();
  });
}

}  // namespace dstune
