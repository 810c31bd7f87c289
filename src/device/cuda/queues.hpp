#pragma once
/// Queues as CUDA's streams.

#include <vector>

#include "dstune/base/handle.hpp"
#include "dstune/device/queues.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

/// A stream or an event with the runtime that ends it.
struct Owned {
  Runtime* runtime;
  void* object;
  bool operator==(const Owned&) const = default;
};
struct StreamTraits {
  using Handle = Owned;
  static Handle null() { return {}; }
  static void close(Handle handle) noexcept { handle.runtime->destroy_stream(handle.object); }
};
struct EventTraits {
  using Handle = Owned;
  static Handle null() { return {}; }
  static void close(Handle handle) noexcept { handle.runtime->destroy_event(handle.object); }
};

/// Streams and events are kept from one prepare() to the next. The kernels' current stream is that
/// of the used queue.
class StreamQueues : public Queues {
 public:
  explicit StreamQueues(Runtime& runtime) : runtime_(runtime) {}

  void prepare(const Numbers& numbers, const Waiter& waiter) override;
  void use(int queue) override;
  void record(int event) override;
  void wait(int event) override;
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void finish(int event) override;
  void finish_used() override;
  void finish_all() override;
  void stamp(int stamp) override;
  double seconds_between(int first, int second) override;
  [[nodiscard]] void* native() const override { return stream(used_); }

 private:
  using UniqueStream = UniqueHandle<StreamTraits>;
  using UniqueEvent = UniqueHandle<EventTraits>;

  [[nodiscard]] Stream stream(std::size_t queue) const {
    return queue < streams_.size() ? streams_[queue].value().object : nullptr;
  }
  [[nodiscard]] static Event at(const std::vector<UniqueEvent>& events, int number) {
    return events.at(static_cast<std::size_t>(number)).value().object;
  }
  void grow(std::vector<UniqueEvent>& events, int count, bool takes_time);
  /// Polls until the event is reached.
  void await(Event event);

  Runtime& runtime_;
  Waiter waiter_;
  std::vector<UniqueStream> streams_;
  std::vector<UniqueEvent> events_, stamps_;
  std::vector<UniqueEvent> ends_;  ///< one a stream, for waits for all that it was asked for
  std::size_t used_ = 0;
};

}  // namespace dstune::cuda
