#include "shuffled_device.hpp"

#include "later_table.hpp"

namespace dstune::test {
namespace {

const kernels::Table& shuffled_table() {
  static const kernels::Table shuffled = [] {
    kernels::Table table = later_table<kernels::cpu_table, ShuffledQueues::ask_current>();
    table.name = "shuffled";
    // As where a sum takes more memory than its result.
    table.sum_doubles += 2;
    return table;
  }();
  return shuffled;
}

}  // namespace

ShuffledDevice::ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed)
    : ShuffledDevice(memory_limit_bytes, seed, shuffled_table()) {}

ShuffledDevice::ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed,
                               const kernels::Table& later)
    : ShuffledDevice(memory_limit_bytes, seed, later, std::make_unique<ProtectedMemory>()) {}

ShuffledDevice::ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed,
                               const kernels::Table& later, std::unique_ptr<ProtectedMemory> memory)
    : Device([&] {
        auto queues = std::make_unique<ShuffledQueues>(*memory, seed);
        return Parts{.kernels = &later,
                     .memory = std::move(memory),
                     .host_memory = std::make_unique<SystemMemory>(),
                     .queues = std::move(queues),
                     .limit_bytes = memory_limit_bytes,
                     .host_limit_bytes = memory_limit_bytes,
                     .threads = 1,
                     .description = "shuffled",
                     .is_asynchronous = true};
      }()) {
  kernels::set_cpu_threads(1);
}

void ShuffledGroup::all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                               const RankRange& among) {
  queues_.ask_for_collective([=, this] { group_.all_reduce(data, count, type, op, among); });
}

void ShuffledGroup::reduce_average(void* data, std::int64_t count, DType type, int root) {
  queues_.ask_for_collective([=, this] { group_.reduce_average(data, count, type, root); });
}

void ShuffledGroup::reduce_scatter_average(void* out, const void* in, std::int64_t count,
                                           DType type, const RankRange& among) {
  queues_.ask_for_collective(
      [=, this] { group_.reduce_scatter_average(out, in, count, type, among); });
}

void ShuffledGroup::all_gather(void* out, const void* in, std::int64_t count, DType type,
                               const RankRange& among) {
  queues_.ask_for_collective([=, this] { group_.all_gather(out, in, count, type, among); });
}

void ShuffledGroup::all_to_all(void* out, const void* in, std::int64_t count, DType type,
                               const RankRange& among) {
  queues_.ask_for_collective([=, this] { group_.all_to_all(out, in, count, type, among); });
}

void ShuffledGroup::exchange_into(std::span<const double> mine, std::span<double> all) {
  // On every rank after the same collectives.
  queues_.finish_all();
  group_.exchange_into(mine, all);
}

}  // namespace dstune::test
