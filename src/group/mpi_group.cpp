#include "mpi_group.hpp"

#include <algorithm>
#include <cstring>

#include "average.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr int collect_tag = 1;
constexpr int exchange_tag = 2;
constexpr std::size_t max_numbers = 32;

}  // namespace

MpiContext::MpiContext(Communicator made, std::size_t staging_bytes, std::uint64_t number)
    : communicator(std::move(made)), id(number) {
  // At least an exchange and a line a rank fit.
  const std::size_t least =
      static_cast<std::size_t>(communicator.size()) * max_numbers * sizeof(double);
  sent = std::make_unique<Bytes>(std::max(staging_bytes / 2, least));
  received = std::make_unique<Bytes>(sent->size());
}

void MpiContext::abandon() noexcept {
  if (abandoned) return;
  abandoned = true;
  communicator.abandon();
  static_cast<void>(sent.release());
  static_cast<void>(received.release());
}

MpiGroup::MpiGroup(std::shared_ptr<MpiContext> context, std::vector<int> world_ranks,
                   int group_rank, Waiter waiter)
    : ProcessGroup(group_rank, std::move(world_ranks)),
      context_(std::move(context)),
      staging_bytes_(context_->sent->size()),
      waiter_(std::move(waiter)),
      parts_(static_cast<std::size_t>(size())) {
  requests_.reserve(2 * parts_.size());
}

template <class Body>
void MpiGroup::guarded(Body&& body) {
  require(!context_->abandoned, "a group is used after it failed");
  try {
    body();
  } catch (...) {
    context_->abandon();
    throw;
  }
}

template <class Body>
void MpiGroup::for_chunks(std::int64_t count, std::int64_t chunk_count, Body&& body) {
  guarded([&] {
    for (std::int64_t first = 0; first < count; first += chunk_count)
      body(first, std::min(chunk_count, count - first));
  });
}

void MpiGroup::complete(Request request, const char* what) const {
  waiter_.until([&] { return request.test(); }, what);
}

void MpiGroup::complete_requests(const char* what) {
  for (Request& request : requests_) complete(std::move(request), what);
}

std::int64_t MpiGroup::elements_per_rank(DType type, const RankRange& ranks) const {
  return static_cast<std::int64_t>(staging_bytes_) / size_bytes(type) / ranks.count;
}

void MpiGroup::send_and_receive(std::size_t bytes_per_rank, std::size_t sent_stride_bytes,
                                const RankRange& ranks, const char* what) {
  require(ranks.contains(group_rank()), "a rank takes part in its own calls");
  const Communicator& communicator = context_->communicator;
  requests_.clear();
  for (int index = 0; index < ranks.count; ++index) {
    const int rank = ranks.rank(index);
    const auto place = static_cast<std::size_t>(index);
    const std::byte* const from = sent() + place * sent_stride_bytes;
    std::byte* const to = received() + place * bytes_per_rank;
    if (rank == group_rank()) {
      std::memcpy(to, from, bytes_per_rank);
      continue;
    }
    requests_.push_back(communicator.start_receive(to, bytes_per_rank, rank, exchange_tag));
    requests_.push_back(communicator.start_send(from, bytes_per_rank, rank, exchange_tag));
  }
  complete_requests(what);
}

void MpiGroup::exchange_parts(std::size_t bytes_per_rank, const RankRange& ranks,
                              const char* what) {
  if (ranks.count < size()) return send_and_receive(bytes_per_rank, bytes_per_rank, ranks, what);
  complete(context_->communicator.start_all_to_all(sent(), received(), bytes_per_rank), what);
}

void MpiGroup::gather(std::size_t bytes_per_rank, const RankRange& ranks, const char* what) {
  if (ranks.count < size()) return send_and_receive(bytes_per_rank, 0, ranks, what);
  complete(context_->communicator.start_all_gather(sent(), received(), bytes_per_rank), what);
}

void MpiGroup::reduce_parts(std::int64_t count_per_rank, DType type, const RankRange& ranks,
                            int divisor) {
  const std::size_t part_bytes = as_bytes(count_per_rank, type);
  exchange_parts(part_bytes, ranks, "waiting for data to reduce");
  const auto parts = std::span(parts_).first(static_cast<std::size_t>(ranks.count));
  for (std::size_t index = 0; index < parts.size(); ++index)
    parts[index] = received() + index * part_bytes;
  sum_and_divide(sent(), parts, divisor, count_per_rank, type, Write::cached);
}

void MpiGroup::collect_parts(std::size_t bytes_per_rank, int root) {
  const Communicator& communicator = context_->communicator;
  if (group_rank() != root) {
    complete(communicator.start_send(sent(), bytes_per_rank, root, collect_tag),
             "sending a reduced slice");
    return;
  }
  requests_.clear();
  for (int rank = 0; rank < size(); ++rank) {
    std::byte* const place = received() + static_cast<std::size_t>(rank) * bytes_per_rank;
    if (rank == root) {
      std::memcpy(place, sent(), bytes_per_rank);
    } else {
      requests_.push_back(communicator.start_receive(place, bytes_per_rank, rank, collect_tag));
    }
  }
  complete_requests("waiting for a reduced slice");
}

void MpiGroup::reduce(void* data, std::int64_t count, DType type, const RankRange& ranks,
                      int divisor, std::optional<int> root) {
  const std::int64_t chunk_count = elements_per_rank(type, ranks) * ranks.count;
  for_chunks(count, chunk_count, [&](std::int64_t first, std::int64_t now) {
    const std::int64_t part = (now + ranks.count - 1) / ranks.count;
    auto* const place = static_cast<std::byte*>(data) + as_bytes(first, type);
    std::memcpy(sent(), place, as_bytes(now, type));
    std::memset(sent() + as_bytes(now, type), 0, as_bytes(part * ranks.count - now, type));
    reduce_parts(part, type, ranks, divisor);
    if (root) {
      collect_parts(as_bytes(part, type), *root);
    } else {
      gather(as_bytes(part, type), ranks, "waiting for reduced slices");
    }
    if (!root || *root == group_rank()) std::memcpy(place, received(), as_bytes(now, type));
  });
}

void MpiGroup::all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  reduce(data, count, type, ranks, op == Reduction::sum ? 1 : ranks.count, std::nullopt);
}

void MpiGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  reduce(data, count, type, {0, 1, size()}, size(), root);
}

void MpiGroup::copy_in(const void* parts, const Pieces& pieces) {
  const std::size_t bytes = as_bytes(pieces.count, pieces.type);
  for (int part = 0; part < pieces.num_parts; ++part) {
    std::memcpy(sent() + static_cast<std::size_t>(part) * bytes,
                static_cast<const std::byte*>(parts) +
                    as_bytes(part * pieces.count_per_part + pieces.first, pieces.type),
                bytes);
  }
}

void MpiGroup::copy_out(void* parts, const Pieces& pieces) const {
  const std::size_t bytes = as_bytes(pieces.count, pieces.type);
  for (int part = 0; part < pieces.num_parts; ++part) {
    std::memcpy(static_cast<std::byte*>(parts) +
                    as_bytes(part * pieces.count_per_part + pieces.first, pieces.type),
                received() + static_cast<std::size_t>(part) * bytes, bytes);
  }
}

void MpiGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                      DType type, const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  const std::int64_t chunk_count = elements_per_rank(type, ranks);
  for_chunks(count_per_rank, chunk_count, [&](std::int64_t first, std::int64_t now) {
    copy_in(in, {first, now, count_per_rank, type, ranks.count});
    reduce_parts(now, type, ranks, ranks.count);
    std::memcpy(static_cast<std::byte*>(out) + as_bytes(first, type), sent(), as_bytes(now, type));
  });
}

void MpiGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  const std::int64_t chunk_count = elements_per_rank(type, ranks);
  for_chunks(count_per_rank, chunk_count, [&](std::int64_t first, std::int64_t now) {
    copy_in(in, {first, now, count_per_rank, type, 1});
    gather(as_bytes(now, type), ranks, "waiting for data to gather");
    copy_out(out, {first, now, count_per_rank, type, ranks.count});
  });
}

void MpiGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  const std::int64_t chunk_count = elements_per_rank(type, ranks);
  for_chunks(count_per_rank, chunk_count, [&](std::int64_t first, std::int64_t now) {
    const Pieces pieces{first, now, count_per_rank, type, ranks.count};
    copy_in(in, pieces);
    exchange_parts(as_bytes(now, type), ranks, "waiting for data of all");
    copy_out(out, pieces);
  });
}

void MpiGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  require(mine.size() <= max_numbers, "too many numbers for an exchange");
  require(all.size() == mine.size() * static_cast<std::size_t>(size()), "room for all numbers");
  guarded([&] {
    if (mine.empty()) return;
    std::memcpy(sent(), mine.data(), mine.size_bytes());
    complete(context_->communicator.start_all_gather(sent(), received(), mine.size_bytes()),
             "waiting for an exchange");
    std::memcpy(all.data(), received(), all.size_bytes());
  });
}

}  // namespace dstune
