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

std::size_t message_bytes(std::int64_t count, DType type) {
  return static_cast<std::size_t>(count * size_bytes(type));
}

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
      waiter_(std::move(waiter)),
      parts_(static_cast<std::size_t>(size())) {
  requests_.reserve(2 * parts_.size());
}

template <class Body>
void MpiGroup::guarded(Body&& body) {
  require(!context_->abandoned, "a group is used after it failed");
  try {
    body(context_->sent->data(), context_->received->data());
  } catch (...) {
    context_->abandon();
    throw;
  }
}

void MpiGroup::complete(Request request, const char* what) const {
  waiter_.until([&] { return request.test(); }, what);
}

void MpiGroup::complete_requests(const char* what) {
  for (Request& request : requests_) complete(std::move(request), what);
}

std::int64_t MpiGroup::elements_per_rank(DType type, const RankRange& ranks) const {
  return static_cast<std::int64_t>(context_->sent->size()) / size_bytes(type) / ranks.count;
}

void MpiGroup::send_and_receive(std::size_t bytes_per_rank, std::size_t sent_stride_bytes,
                                const RankRange& ranks, const char* what) {
  require(ranks.contains(group_rank()), "a rank takes part in its own calls");
  const Communicator& communicator = context_->communicator;
  requests_.clear();
  for (int index = 0; index < ranks.count; ++index) {
    const int rank = ranks.rank(index);
    const auto place = static_cast<std::size_t>(index);
    const std::byte* const sent = context_->sent->data() + place * sent_stride_bytes;
    std::byte* const received = context_->received->data() + place * bytes_per_rank;
    if (rank == group_rank()) {
      std::memcpy(received, sent, bytes_per_rank);
      continue;
    }
    requests_.push_back(communicator.start_receive(received, bytes_per_rank, rank, exchange_tag));
    requests_.push_back(communicator.start_send(sent, bytes_per_rank, rank, exchange_tag));
  }
  complete_requests(what);
}

void MpiGroup::exchange_parts(std::size_t bytes_per_rank, const RankRange& ranks,
                              const char* what) {
  if (ranks.count < size()) return send_and_receive(bytes_per_rank, bytes_per_rank, ranks, what);
  complete(context_->communicator.start_all_to_all(context_->sent->data(),
                                                   context_->received->data(), bytes_per_rank),
           what);
}

void MpiGroup::gather(std::size_t bytes_per_rank, const RankRange& ranks, const char* what) {
  if (ranks.count < size()) return send_and_receive(bytes_per_rank, 0, ranks, what);
  complete(context_->communicator.start_all_gather(context_->sent->data(),
                                                   context_->received->data(), bytes_per_rank),
           what);
}

void MpiGroup::reduce_parts(std::int64_t count_per_rank, DType type, const RankRange& ranks,
                            int divisor) {
  const std::size_t part_bytes = message_bytes(count_per_rank, type);
  const std::byte* const received = context_->received->data();
  exchange_parts(part_bytes, ranks, "waiting for data to reduce");
  const auto parts = std::span(parts_).first(static_cast<std::size_t>(ranks.count));
  for (std::size_t index = 0; index < parts.size(); ++index)
    parts[index] = received + index * part_bytes;
  sum_and_divide(context_->sent->data(), parts, divisor, count_per_rank, type, Write::cached);
}

void MpiGroup::collect_parts(std::size_t bytes_per_rank, int root) {
  std::byte* const sent = context_->sent->data();
  std::byte* const received = context_->received->data();
  const Communicator& communicator = context_->communicator;
  if (group_rank() != root) {
    complete(communicator.start_send(sent, bytes_per_rank, root, collect_tag),
             "sending a reduced slice");
    return;
  }
  requests_.clear();
  for (int rank = 0; rank < size(); ++rank) {
    std::byte* const place = received + static_cast<std::size_t>(rank) * bytes_per_rank;
    if (rank == root) {
      std::memcpy(place, sent, bytes_per_rank);
    } else {
      requests_.push_back(communicator.start_receive(place, bytes_per_rank, rank, collect_tag));
    }
  }
  complete_requests("waiting for a reduced slice");
}

void MpiGroup::all_reduce_average(void* data, std::int64_t count, DType type,
                                  const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  all_reduce(data, count, type, ranks, ranks.count);
}

void MpiGroup::all_reduce_sum(void* data, std::int64_t count, DType type) {
  all_reduce(data, count, type, {0, 1, size()}, 1);
}

void MpiGroup::all_reduce(void* data, std::int64_t count, DType type, const RankRange& ranks,
                          int divisor) {
  guarded([&](std::byte* sent, std::byte* received) {
    const std::int64_t chunk_count = elements_per_rank(type, ranks) * ranks.count;
    for (std::int64_t first = 0; first < count; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count - first);
      const std::int64_t part = (now + ranks.count - 1) / ranks.count;
      auto* const place = static_cast<std::byte*>(data) + message_bytes(first, type);
      std::memcpy(sent, place, message_bytes(now, type));
      std::memset(sent + message_bytes(now, type), 0,
                  message_bytes(part * ranks.count - now, type));
      reduce_parts(part, type, ranks, divisor);
      gather(message_bytes(part, type), ranks, "waiting for reduced slices");
      std::memcpy(place, received, message_bytes(now, type));
    }
  });
}

void MpiGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  const RankRange everyone{0, 1, size()};
  guarded([&](std::byte* sent, std::byte* received) {
    const std::int64_t chunk_count = elements_per_rank(type, everyone) * size();
    for (std::int64_t first = 0; first < count; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count - first);
      const std::int64_t part = (now + size() - 1) / size();
      auto* const place = static_cast<std::byte*>(data) + message_bytes(first, type);
      std::memcpy(sent, place, message_bytes(now, type));
      std::memset(sent + message_bytes(now, type), 0, message_bytes(part * size() - now, type));
      reduce_parts(part, type, everyone, size());
      collect_parts(message_bytes(part, type), root);
      if (group_rank() == root) std::memcpy(place, received, message_bytes(now, type));
    }
  });
}

void MpiGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                      DType type, const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  guarded([&](std::byte* sent, std::byte*) {
    const std::int64_t chunk_count = elements_per_rank(type, ranks);
    for (std::int64_t first = 0; first < count_per_rank; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count_per_rank - first);
      for (int index = 0; index < ranks.count; ++index) {
        std::memcpy(
            sent + message_bytes(index * now, type),
            static_cast<const std::byte*>(in) + message_bytes(index * count_per_rank + first, type),
            message_bytes(now, type));
      }
      reduce_parts(now, type, ranks, ranks.count);
      std::memcpy(static_cast<std::byte*>(out) + message_bytes(first, type), sent,
                  message_bytes(now, type));
    }
  });
}

void MpiGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  guarded([&](std::byte* sent, std::byte* received) {
    const std::int64_t chunk_count = elements_per_rank(type, ranks);
    for (std::int64_t first = 0; first < count_per_rank; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count_per_rank - first);
      const std::size_t bytes = message_bytes(now, type);
      std::memcpy(sent, static_cast<const std::byte*>(in) + message_bytes(first, type), bytes);
      gather(bytes, ranks, "waiting for data to gather");
      for (int index = 0; index < ranks.count; ++index) {
        std::memcpy(
            static_cast<std::byte*>(out) + message_bytes(index * count_per_rank + first, type),
            received + static_cast<std::size_t>(index) * bytes, bytes);
      }
    }
  });
}

void MpiGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among) {
  const RankRange ranks = among.in_group_of(size());
  guarded([&](std::byte* sent, std::byte* received) {
    const std::int64_t chunk_count = elements_per_rank(type, ranks);
    for (std::int64_t first = 0; first < count_per_rank; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count_per_rank - first);
      const std::size_t bytes = message_bytes(now, type);
      const auto place = [&](int index) {
        return message_bytes(index * count_per_rank + first, type);
      };
      const auto staged = [&](int index) { return static_cast<std::size_t>(index) * bytes; };
      for (int index = 0; index < ranks.count; ++index)
        std::memcpy(sent + staged(index), static_cast<const std::byte*>(in) + place(index), bytes);
      exchange_parts(bytes, ranks, "waiting for data of all");
      for (int index = 0; index < ranks.count; ++index)
        std::memcpy(static_cast<std::byte*>(out) + place(index), received + staged(index), bytes);
    }
  });
}

void MpiGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  require(mine.size() <= max_numbers, "too many numbers for an exchange");
  require(all.size() == mine.size() * static_cast<std::size_t>(size()), "room for all numbers");
  guarded([&](std::byte* sent, std::byte* received) {
    if (mine.empty()) return;
    std::memcpy(sent, mine.data(), mine.size_bytes());
    complete(context_->communicator.start_all_gather(sent, received, mine.size_bytes()),
             "waiting for an exchange");
    std::memcpy(all.data(), received, all.size_bytes());
  });
}

}  // namespace dstune
