#include "nccl_group.hpp"

#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

using nccl::Buffers;
using nccl::Comm;
using nccl::Library;
using nccl::Result;

namespace {

void require_numbers(DType type) {
  require(type == DType::f32 || type == DType::bf16 || type == DType::f16,
          "averages are of floating-point numbers");
}

}  // namespace

NcclGroup::NcclGroup(std::unique_ptr<ProcessGroup> host,
                     std::shared_ptr<NcclCommunicator> communicator, Queues& queues, Waiter waiter,
                     Recording recording)
    : ProcessGroup(host->group_rank(), host->world_ranks()),
      host_(std::move(host)),
      communicator_(std::make_shared<std::shared_ptr<NcclCommunicator>>(std::move(communicator))),
      queues_(queues),
      waiter_(std::move(waiter)),
      recording_(std::move(recording)) {}

Waiter NcclGroup::watched(const Waiter& waiter) const {
  return waiter.with_check([communicator = communicator_] { (*communicator)->check(); });
}

void NcclGroup::renew(const std::string& why) {
  recording_.why_not = why;
  *communicator_ = recording_.renewed(*host_, why);
}

template <class Call>
void NcclGroup::enqueue(const RankRange& among, const Buffers& buffers, const char* what,
                        Call&& call) {
  const RankRange ranks = among.in_group_of(size());
  require(ranks.contains(group_rank()), "a rank takes part in its own calls");
  const auto& [in, out, count, type] = buffers;
  if (count == 0) return;
  if (ranks.count == 1 && size() > 1) {
    if (out != in) queues_.copy(out, in, count * size_bytes(type));
    return;
  }
  // The communicator that is split has nothing left to do.
  if (!communicator().has(ranks)) queues_.finish_all();
  const Comm comm = communicator().of(ranks, waiter_);
  communicator().enqueue(comm, waiter_, what,
                         [&](Library& library) { return call(library, comm, queues_.native()); });
}

void NcclGroup::all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                           const RankRange& among) {
  require_numbers(type);
  const Buffers buffers{data, data, count, type};
  enqueue(among, buffers, "an all-reduce", [&](Library& library, Comm comm, void* stream) {
    return library.all_reduce(buffers, op, comm, stream);
  });
}

void NcclGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  require_numbers(type);
  const Buffers buffers{data, root == group_rank() ? data : nullptr, count, type};
  enqueue({}, buffers, "a reduction to one rank", [&](Library& library, Comm comm, void* stream) {
    return library.reduce(buffers, Reduction::average, root, comm, stream);
  });
}

void NcclGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                       DType type, const RankRange& among) {
  require_numbers(type);
  const Buffers buffers{in, out, count_per_rank, type};
  enqueue(among, buffers, "a reduce-scatter", [&](Library& library, Comm comm, void* stream) {
    return library.reduce_scatter(buffers, Reduction::average, comm, stream);
  });
}

void NcclGroup::all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                           const RankRange& among) {
  const Buffers buffers{in, out, count_per_rank, type};
  enqueue(among, buffers, "an all-gather", [&](Library& library, Comm comm, void* stream) {
    return library.all_gather(buffers, comm, stream);
  });
}

void NcclGroup::all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                           const RankRange& among) {
  const auto call = [&](Library& library, Comm comm, void* stream) {
    Result failed = library.group_start();
    const auto note = [&](Result result) {
      // In a group a call is only noted; what becomes of it is said at the end.
      if (failed == Result::success && result != Result::in_progress) failed = result;
    };
    const std::int64_t part_bytes = count_per_rank * size_bytes(type);
    for (int index = 0; index < among.size(size()); ++index) {
      note(library.send(static_cast<const std::byte*>(in) + index * part_bytes, count_per_rank,
                        type, index, comm, stream));
      note(library.receive(static_cast<std::byte*>(out) + index * part_bytes, count_per_rank, type,
                           index, comm, stream));
    }
    // It ends also where it holds a failed call.
    const Result ended = library.group_end();
    return failed == Result::success ? ended : failed;
  };
  enqueue(among, {in, out, count_per_rank, type}, "an all-to-all", call);
}

void NcclGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  host_->exchange_into(mine, all);
}

}  // namespace dstune
