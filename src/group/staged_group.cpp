#include "dstune/group/staged_group.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "average.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr std::size_t staged_line_bytes = 64;
constexpr std::size_t num_slots = 2;

}  // namespace

std::size_t StagedGroup::min_staging_bytes(int group_size) {
  // all_to_all has two parts a rank in a slot.
  return num_slots * 2 * static_cast<std::size_t>(group_size) * staged_line_bytes;
}

StagedGroup::StagedGroup(std::unique_ptr<ProcessGroup> host, Queues& queues,
                         std::span<std::byte> staging)
    : ProcessGroup(host->group_rank(), host->world_ranks()),
      host_(std::move(host)),
      queues_(queues),
      staging_(staging),
      slot_bytes_(staging.size() / num_slots / staged_line_bytes * staged_line_bytes) {
  require(staging.size() >= min_staging_bytes(size()),
          "too little staging memory for so large a group");
  require(reinterpret_cast<std::uintptr_t>(staging.data()) % staged_line_bytes == 0,
          "staging memory begins at a line");
}

RankRange StagedGroup::own_range(const RankRange& among) const {
  const RankRange ranks = among.in_group_of(size());
  require(ranks.contains(group_rank()), "a rank takes part in its own calls");
  return ranks;
}

// Whole lines, as what is copied and summed likes best.
std::int64_t StagedGroup::piece_elements(DType type, int parts) const {
  const std::size_t lines = slot_bytes_ / static_cast<std::size_t>(parts) / staged_line_bytes;
  return static_cast<std::int64_t>(lines * staged_line_bytes) / size_bytes(type);
}

template <class Body>
void StagedGroup::guarded(Body&& body) {
  require(!failed_, "a group is used after it failed");
  try {
    body();
  } catch (...) {
    failed_ = true;
    throw;
  }
}

template <class CopyIn, class Collective, class CopyOut>
void StagedGroup::for_pieces(std::int64_t count, std::int64_t piece_count, CopyIn&& copy_in,
                             Collective&& collective, CopyOut&& copy_out) {
  std::size_t next_slot = 0;
  const auto begin = [&](std::int64_t first) {
    const Piece piece{first, std::min(piece_count, count - first),
                      staging_.data() + std::exchange(next_slot, 1 - next_slot) * slot_bytes_};
    if (piece.count > 0) copy_in(piece);
    return piece;
  };
  guarded([&] {
    if (count == 0) return;
    Piece next = begin(0);
    queues_.finish_used();
    while (next.count > 0) {
      const Piece piece = next;
      // Behind the copy out of the same slot, in the same queue.
      next = begin(piece.first + piece.count);
      collective(piece);
      // The next piece is there, and the other slot's results are gone; this one's follow.
      queues_.finish_used();
      copy_out(piece);
    }
    // The next call may use another queue.
    queues_.finish_used();
  });
}

template <class Collective>
void StagedGroup::in_place(void* data, std::int64_t count, DType type, bool copies_back,
                           Collective&& collective) {
  const auto place = [&](const Piece& piece) {
    return static_cast<std::byte*>(data) + as_bytes(piece.first, type);
  };
  for_pieces(
      count, piece_elements(type, 1),
      [&](const Piece& piece) {
        queues_.copy(piece.slot, place(piece), as_bytes(piece.count, type));
      },
      collective,
      [&](const Piece& piece) {
        if (copies_back) queues_.copy(place(piece), piece.slot, as_bytes(piece.count, type));
      });
}

void StagedGroup::all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                             const RankRange& among) {
  in_place(data, count, type, true, [&](const Piece& piece) {
    host_->all_reduce(piece.slot, piece.count, type, op, among);
  });
}

void StagedGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  in_place(data, count, type, root == group_rank(),
           [&](const Piece& piece) { host_->reduce_average(piece.slot, piece.count, type, root); });
}

void StagedGroup::copy_in(const Piece& piece, const void* parts, const Parts& of) {
  const auto bytes = as_bytes(piece.count, of.type);
  for (int index = 0; index < of.num; ++index) {
    queues_.copy(piece.slot + static_cast<std::size_t>(index) * bytes,
                 static_cast<const std::byte*>(parts) +
                     as_bytes(index * of.count_per_rank + piece.first, of.type),
                 bytes);
  }
}

void StagedGroup::copy_out(void* parts, const std::byte* staged, const Piece& piece,
                           const Parts& of) {
  const auto bytes = as_bytes(piece.count, of.type);
  for (int index = 0; index < of.num; ++index) {
    queues_.copy(
        static_cast<std::byte*>(parts) + as_bytes(index * of.count_per_rank + piece.first, of.type),
        staged + static_cast<std::size_t>(index) * bytes, bytes);
  }
}

void StagedGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                         DType type, const RankRange& among) {
  const RankRange ranks = own_range(among);
  const int own = ranks.index_of(group_rank());
  const auto own_part = [&](const Piece& piece) {
    return piece.slot + as_bytes(own * piece.count, type);
  };
  for_pieces(
      count_per_rank, piece_elements(type, ranks.count),
      [&](const Piece& piece) {
        copy_in(piece, in, {count_per_rank, type, ranks.count});
      },
      [&](const Piece& piece) {
        host_->reduce_scatter_average(own_part(piece), piece.slot, piece.count, type, among);
      },
      [&](const Piece& piece) {
        copy_out(out, own_part(piece), piece, {count_per_rank, type, 1});
      });
}

void StagedGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                             const RankRange& among) {
  const RankRange ranks = own_range(among);
  const int own = ranks.index_of(group_rank());
  const auto own_part = [&](const Piece& piece) {
    return piece.slot + as_bytes(own * piece.count, type);
  };
  for_pieces(
      count_per_rank, piece_elements(type, ranks.count),
      [&](const Piece& piece) {
        queues_.copy(own_part(piece),
                     static_cast<const std::byte*>(in) + as_bytes(piece.first, type),
                     as_bytes(piece.count, type));
      },
      [&](const Piece& piece) {
        host_->all_gather(piece.slot, own_part(piece), piece.count, type, among);
      },
      [&](const Piece& piece) {
        copy_out(out, piece.slot, piece, {count_per_rank, type, ranks.count});
      });
}

void StagedGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                             const RankRange& among) {
  const RankRange ranks = own_range(among);
  const Parts parts{count_per_rank, type, ranks.count};
  const auto received = [&](const Piece& piece) {
    return piece.slot + as_bytes(ranks.count * piece.count, type);
  };
  for_pieces(
      count_per_rank, piece_elements(type, 2 * ranks.count),
      [&](const Piece& piece) { copy_in(piece, in, parts); },
      [&](const Piece& piece) {
        host_->all_to_all(received(piece), piece.slot, piece.count, type, among);
      },
      [&](const Piece& piece) { copy_out(out, received(piece), piece, parts); });
}

void StagedGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  guarded([&] { host_->exchange_into(mine, all); });
}

}  // namespace dstune
