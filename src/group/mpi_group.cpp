#include "mpi_group.hpp"

#include <algorithm>
#include <cstring>

#include "average.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr int collect_tag = 1;
constexpr std::size_t max_numbers = 32;

std::size_t as_bytes(std::int64_t count, DType type) {
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
  requests_.reserve(parts_.size());
}

template <class Body>
void MpiGroup::guarded(Body&& body) {
  require(!context_->abandoned, "a group is used after it failed");
  try {
    body(context_->sent->data(), context_->received->data());
  } catch (const CollectiveError&) {
    context_->abandon();
    throw;
  } catch (const MpiError&) {
    context_->abandon();
    throw;
  }
}

void MpiGroup::complete(Request request, const char* what) const {
  waiter_.until([&] { return request.test(); }, what);
}

std::int64_t MpiGroup::elements_per_rank(DType type) const {
  return static_cast<std::int64_t>(context_->sent->size()) / size_bytes(type) / size();
}

void MpiGroup::reduce_parts(std::int64_t count_per_rank, DType type, int divisor) {
  const std::size_t part_bytes = as_bytes(count_per_rank, type);
  std::byte* const sent = context_->sent->data();
  std::byte* const received = context_->received->data();
  complete(context_->communicator.start_all_to_all(sent, received, part_bytes),
           "waiting for data to reduce");
  for (std::size_t rank = 0; rank < parts_.size(); ++rank)
    parts_[rank] = received + rank * part_bytes;
  sum_and_divide(sent, parts_, divisor, count_per_rank, type, Write::cached);
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
  for (Request& request : requests_) {
    complete(std::move(request), "waiting for a reduced slice");
  }
}

void MpiGroup::all_reduce_average(void* data, std::int64_t count, DType type) {
  all_reduce(data, count, type, size());
}

void MpiGroup::all_reduce_sum(void* data, std::int64_t count, DType type) {
  all_reduce(data, count, type, 1);
}

void MpiGroup::all_reduce(void* data, std::int64_t count, DType type, int divisor) {
  guarded([&](std::byte* sent, std::byte* received) {
    const std::int64_t chunk_count = elements_per_rank(type) * size();
    for (std::int64_t first = 0; first < count; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count - first);
      const std::int64_t part = (now + size() - 1) / size();
      auto* const place = static_cast<std::byte*>(data) + as_bytes(first, type);
      std::memcpy(sent, place, as_bytes(now, type));
      std::memset(sent + as_bytes(now, type), 0, as_bytes(part * size() - now, type));
      reduce_parts(part, type, divisor);
      complete(context_->communicator.start_all_gather(sent, received, as_bytes(part, type)),
               "waiting for reduced slices");
      std::memcpy(place, received, as_bytes(now, type));
    }
  });
}

void MpiGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  guarded([&](std::byte* sent, std::byte* received) {
    const std::int64_t chunk_count = elements_per_rank(type) * size();
    for (std::int64_t first = 0; first < count; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count - first);
      const std::int64_t part = (now + size() - 1) / size();
      auto* const place = static_cast<std::byte*>(data) + as_bytes(first, type);
      std::memcpy(sent, place, as_bytes(now, type));
      std::memset(sent + as_bytes(now, type), 0, as_bytes(part * size() - now, type));
      reduce_parts(part, type, size());
      collect_parts(as_bytes(part, type), root);
      if (group_rank() == root) std::memcpy(place, received, as_bytes(now, type));
    }
  });
}

void MpiGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                      DType type) {
  guarded([&](std::byte* sent, std::byte*) {
    const std::int64_t chunk_count = elements_per_rank(type);
    for (std::int64_t first = 0; first < count_per_rank; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count_per_rank - first);
      for (int rank = 0; rank < size(); ++rank) {
        std::memcpy(
            sent + as_bytes(rank * now, type),
            static_cast<const std::byte*>(in) + as_bytes(rank * count_per_rank + first, type),
            as_bytes(now, type));
      }
      reduce_parts(now, type, size());
      std::memcpy(static_cast<std::byte*>(out) + as_bytes(first, type), sent, as_bytes(now, type));
    }
  });
}

void MpiGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type) {
  guarded([&](std::byte* sent, std::byte* received) {
    const std::int64_t chunk_count = elements_per_rank(type);
    for (std::int64_t first = 0; first < count_per_rank; first += chunk_count) {
      const std::int64_t now = std::min(chunk_count, count_per_rank - first);
      const std::size_t bytes = as_bytes(now, type);
      std::memcpy(sent, static_cast<const std::byte*>(in) + as_bytes(first, type), bytes);
      complete(context_->communicator.start_all_gather(sent, received, bytes),
               "waiting for data to gather");
      for (int rank = 0; rank < size(); ++rank) {
        std::memcpy(static_cast<std::byte*>(out) + as_bytes(rank * count_per_rank + first, type),
                    received + static_cast<std::size_t>(rank) * bytes, bytes);
      }
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
