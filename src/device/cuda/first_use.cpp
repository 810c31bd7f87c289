#include "first_use.hpp"

#include <algorithm>
#include <cstdint>

#include "dstune/base/error.hpp"
#include "dstune/base/handle.hpp"
#include "dstune/kernels/cuda.hpp"
#include "memory.hpp"
#include "queues.hpp"

namespace dstune::cuda {
namespace {

using kernels::DType;

/// Zeros on the GPU, for as long as it lives.
class Zeros {
 public:
  Zeros(Runtime& runtime, const kernels::Table& table, std::size_t bytes)
      : Zeros(runtime, static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1))) {
    // From here on it is destroyed whatever happens.
    table.zero(begin_, static_cast<std::size_t>(bytes_));
  }
  ~Zeros() { memory_.give_back(begin_, bytes_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  [[nodiscard]] void* get() const { return begin_; }

 private:
  Zeros(Runtime& runtime, std::int64_t bytes)
      : memory_(runtime), bytes_(bytes), begin_(memory_.take(bytes)) {}

  DeviceMemory memory_;
  std::int64_t bytes_;
  std::byte* begin_;
};

/// Memory is given back only when nothing uses it any more; where that never comes, not at all.
void finish(Runtime& runtime, const Waiter& waiter) {
  Event made = nullptr;
  check(runtime, runtime.create_event(made, false), "making an event");
  const UniqueHandle<EventTraits> event(Owned{&runtime, made});
  check(runtime, runtime.record(made, nullptr), "recording an event");
  const auto is_done = [&] {
    const Code code = runtime.query(made);
    if (code == runtime.not_ready()) return false;
    check(runtime, code, "using the libraries");
    return true;
  };
  try {
    waiter.until(is_done, "the first use of the libraries");
  } catch (const CollectiveError&) {
    runtime.give_up();
    throw;
  }
}

void multiply_and_attend(Runtime& runtime, const kernels::Table& table, const Waiter& waiter) {
  constexpr std::int64_t size = 128;
  constexpr std::size_t max_bytes = std::size_t{size} * size * sizeof(float);
  const Zeros in(runtime, table, 3 * max_bytes);
  const Zeros more(runtime, table, max_bytes);
  const Zeros out(runtime, table, max_bytes);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const kernels::MatmulShape product{
        .m = size, .n = size, .k = size, .type = type, .out_type = type};
    const Zeros workspace(runtime, table, table.matmul_workspace_bytes(product));
    table.matmul(product, in.get(), more.get(), nullptr, out.get(), workspace.get());
    finish(runtime, waiter);
  }
  const kernels::AttentionShape heads{.batch = 1,
                                      .sequence = size,
                                      .heads = 1,
                                      .kv_heads = 1,
                                      .head_size = size / 2,
                                      .type = DType::bf16};
  const Zeros workspace(runtime, table, table.attention_workspace_bytes(heads));
  table.attention_forward(heads, out.get(), static_cast<float*>(more.get()), in.get(),
                          workspace.get());
  finish(runtime, waiter);
}

}  // namespace

void use_libraries(Runtime& runtime, const kernels::Table& table, const Waiter& waiter) {
  // finish() waits for that; a device that this thread used before has left its own behind.
  kernels::set_cuda_stream(nullptr);
  multiply_and_attend(runtime, table, waiter);
}

}  // namespace dstune::cuda
