#pragma once
/// Queues as CUDA's streams.

#include <memory>
#include <utility>
#include <vector>

#include "dstune/base/handle.hpp"
#include "dstune/device/queues.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

/// A stream, an event or a graph with the runtime that ends it.
template <class Object>
struct Owned {
  Runtime* runtime;
  Object object;
  bool operator==(const Owned&) const = default;
};
template <class Object>
Owned(Runtime*, Object) -> Owned<Object>;
template <class Object, Code (Runtime::*Destroy)(Object)>
struct OwnedTraits {
  using Handle = Owned<Object>;
  static Handle null() { return {}; }
  static void close(Handle handle) noexcept {
    if (!handle.runtime->is_given_up()) (handle.runtime->*Destroy)(handle.object);
  }
};
using StreamTraits = OwnedTraits<Stream, &Runtime::destroy_stream>;
using EventTraits = OwnedTraits<Event, &Runtime::destroy_event>;
using GraphTraits = OwnedTraits<Graph, &Runtime::destroy_graph>;
using ExecutableTraits = OwnedTraits<ExecutableGraph, &Runtime::destroy_executable>;

class StreamQueues;

/// Work of queues as a graph. Launches differ in the events that stand for its stamps.
struct GraphRecording : public Recording {
  struct Stamp {
    Node node;
    int number;  ///< from the recording's first on
  };
  /// The queues outlive it.
  GraphRecording(StreamQueues& of, UniqueHandle<GraphTraits> captured,
                 UniqueHandle<ExecutableTraits> instantiated, std::vector<Stamp> recorded)
      : queues(of),
        graph(std::move(captured)),
        executable(std::move(instantiated)),
        stamps(std::move(recorded)) {}
  ~GraphRecording() override;

  StreamQueues& queues;
  UniqueHandle<GraphTraits> graph;  ///< of which the nodes are
  UniqueHandle<ExecutableTraits> executable;
  std::vector<Stamp> stamps;
};

/// Streams, and events that take times, are kept from one prepare() to the next. The kernels'
/// current stream is that of the used queue. A recording is a graph that is captured from all
/// streams, and launched on the first between waits of it for all and of all for it.
class StreamQueues : public Queues, private Recorder {
 public:
  explicit StreamQueues(Runtime& runtime, bool records = true)
      : runtime_(runtime), records_(records) {}

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
  void begin_range(const char* name) override { runtime_.begin_range(name); }
  void end_range() noexcept override { runtime_.end_range(); }
  [[nodiscard]] Recorder* recorder() override { return records_ ? this : nullptr; }
  /// Takes the graph of a recording that goes. It may be under way, and then whoever destroyed it
  /// might wait for it. So it is kept until the next prepare(), or until drain() says that
  /// everything that was asked for is done.
  void drop(UniqueHandle<ExecutableTraits> executable) noexcept;
  void drain() noexcept;

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
  void record_end(std::size_t queue);
  /// All queues go on when the first has done what it was asked for so far, or it when they have.
  void fork();
  void join();

  void begin(int first_stamp) override;
  std::unique_ptr<Recording> end() override;
  void drop() noexcept override;
  void replay(Recording& recording, int first_stamp) override;

  Runtime& runtime_;
  bool records_;
  Waiter waiter_;
  std::vector<UniqueStream> streams_;
  std::vector<UniqueEvent> events_, stamps_;
  std::vector<UniqueEvent> ends_;  ///< one a stream, for waits for all that it was asked for
  std::size_t used_ = 0;
  bool is_recording_ = false;
  int first_stamp_ = 0;           ///< of what is recorded
  bool may_be_at_graph_ = false;  ///< one was launched since finish_all()
  std::vector<UniqueHandle<ExecutableTraits>> dropped_;
};

}  // namespace dstune::cuda
