#include "shuffled_device.hpp"

namespace dstune::test {
namespace {

using kernels::Table;

/// A function of the processor's table, called when its turn comes with the arguments of now.
template <auto member>
struct Later;
template <class... Args, void (*Table::*member)(Args...)>
struct Later<member> {
  static void call(Args... args) {
    ShuffledQueues::current().ask([=] { (kernels::cpu_table().*member)(args...); });
  }
};

template <auto... members>
void put_off(Table& table) {
  ((table.*members = Later<members>::call), ...);
}

const Table& shuffled_table() {
  static const Table shuffled = [] {
    Table table = kernels::cpu_table();
    table.name = "shuffled";
    // As where a sum takes more memory than its result.
    table.sum_doubles += 2;
    put_off<&Table::matmul, &Table::embedding_forward, &Table::embedding_backward,
            &Table::layernorm_forward, &Table::layernorm_backward, &Table::rmsnorm_forward,
            &Table::rmsnorm_backward, &Table::head_norm_forward, &Table::head_norm_backward,
            &Table::rotary, &Table::attention_forward, &Table::attention_backward,
            &Table::activation_forward, &Table::activation_backward, &Table::swiglu_forward,
            &Table::swiglu_backward, &Table::bias_backward, &Table::cross_entropy, &Table::add,
            &Table::convert, &Table::quantize, &Table::dequantize, &Table::scale, &Table::zero,
            &Table::sum_of_squares, &Table::sum_f32, &Table::clip_factor, &Table::adam,
            &Table::lion, &Table::sgd, &Table::adagrad, &Table::fill_normal, &Table::fill>(table);
    return table;
  }();
  return shuffled;
}

}  // namespace

ShuffledDevice::ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed)
    : ShuffledDevice(memory_limit_bytes, seed, std::make_unique<ProtectedMemory>()) {}

ShuffledDevice::ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed,
                               std::unique_ptr<ProtectedMemory> memory)
    : Device([&] {
        auto queues = std::make_unique<ShuffledQueues>(*memory, seed);
        return Parts{.kernels = &shuffled_table(),
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

void ShuffledGroup::all_reduce_average(void* data, std::int64_t count, DType type,
                                       const RankRange& among) {
  queues_.ask_for_collective([=, this] { group_.all_reduce_average(data, count, type, among); });
}

void ShuffledGroup::all_reduce_sum(void* data, std::int64_t count, DType type) {
  queues_.ask_for_collective([=, this] { group_.all_reduce_sum(data, count, type); });
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
