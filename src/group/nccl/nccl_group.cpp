#include "nccl_group.hpp"

#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

using nccl::Comm;
using nccl::Library;
using nccl::Reduction;
using nccl::Result;

namespace {

void require_numbers(DType type) {
  require(type == DType::f32 || type == DType::bf16 || type == DType::f16,
          "averages are of floating-point numbers");
}

}  // namespace

NcclGroup::NcclGroup(std::unique_ptr<ProcessGroup> host,
                     std::shared_ptr<NcclCommunicator> communicator, Queues& queues, Waiter waiter)
    : ProcessGroup(host->group_rank(), host->world_ranks()),
      host_(std::move(host)),
      communicator_(std::move(communicator)),
      queues_(queues),
      waiter_(std::move(waiter)) {}

Waiter NcclGroup::watched(const Waiter& waiter) const {
  return waiter.with_check([communicator = communicator_] { communicator->check(); });
}

template <class Enqueue>
void NcclGroup::among_ranks(const RankRange& among, std::int64_t count, Enqueue&& enqueue) {
  const RankRange ranks = among.in_group_of(size());
  require(ranks.contains(group_rank()), "a rank takes part in its own calls");
  if (count == 0) return;
  const bool is_part_of_one = ranks.count == 1 && size() > 1;
  // What is split has nothing left to do.
  if (!is_part_of_one && !communicator_->has(ranks)) queues_.finish_all();
  enqueue(ranks, is_part_of_one ? nullptr : communicator_->of(ranks, waiter_));
}

void NcclGroup::copy(void* out, const void* in, std::int64_t count, DType type) {
  if (out != in) queues_.copy(out, in, count * size_bytes(type));
}

void NcclGroup::all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                           const RankRange& among) {
  require_numbers(type);
  among_ranks(among, count, [&](const RankRange&, Comm comm) {
    if (comm == nullptr) return;
    communicator_->enqueue(comm, waiter_, "an all-reduce", [&](Library& library) {
      return library.all_reduce({data, data, count, type}, op, comm, queues_.native());
    });
  });
}

void NcclGroup::all_reduce_average(void* data, std::int64_t count, DType type,
                                   const RankRange& among) {
  all_reduce(data, count, type, Reduction::average, among);
}

void NcclGroup::all_reduce_sum(void* data, std::int64_t count, DType type) {
  all_reduce(data, count, type, Reduction::sum, {});
}

void NcclGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  require_numbers(type);
  among_ranks({}, count, [&](const RankRange&, Comm comm) {
    if (comm == nullptr) return;
    void* const out = root == group_rank() ? data : nullptr;
    communicator_->enqueue(comm, waiter_, "a reduction to one rank", [&](Library& library) {
      return library.reduce({data, out, count, type}, Reduction::average, root, comm,
                            queues_.native());
    });
  });
}

void NcclGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                       DType type, const RankRange& among) {
  require_numbers(type);
  among_ranks(among, count_per_rank, [&](const RankRange&, Comm comm) {
    if (comm == nullptr) return copy(out, in, count_per_rank, type);
    communicator_->enqueue(comm, waiter_, "a reduce-scatter", [&](Library& library) {
      return library.reduce_scatter({in, out, count_per_rank, type}, Reduction::average, comm,
                                    queues_.native());
    });
  });
}

void NcclGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                           const RankRange& among) {
  among_ranks(among, count_per_rank, [&](const RankRange&, Comm comm) {
    if (comm == nullptr) return copy(out, in, count_per_rank, type);
    communicator_->enqueue(comm, waiter_, "an all-gather", [&](Library& library) {
      return library.all_gather({in, out, count_per_rank, type}, comm, queues_.native());
    });
  });
}

void NcclGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                           const RankRange& among) {
  among_ranks(among, count_per_rank, [&](const RankRange& ranks, Comm comm) {
    if (comm == nullptr) return copy(out, in, count_per_rank, type);
    communicator_->enqueue(comm, waiter_, "an all-to-all", [&](Library& library) {
      void* const stream = queues_.native();
      Result failed = library.group_start();
      const auto note = [&](Result result) {
        // In a group a call is only noted; what becomes of it is said at the end.
        if (failed == Result::success && result != Result::in_progress) failed = result;
      };
      const std::int64_t part_bytes = count_per_rank * size_bytes(type);
      for (int index = 0; index < ranks.count; ++index) {
        note(library.send(static_cast<const std::byte*>(in) + index * part_bytes, count_per_rank,
                          type, index, comm, stream));
        note(library.receive(static_cast<std::byte*>(out) + index * part_bytes, count_per_rank,
                             type, index, comm, stream));
      }
      // It ends also where it holds a failed call.
      const Result ended = library.group_end();
      return failed == Result::success ? ended : failed;
    });
  });
}

void NcclGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  host_->exchange_into(mine, all);
}

}  // namespace dstune
