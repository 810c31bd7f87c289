#include "queues.hpp"

#include <algorithm>

#include "dstune/kernels/cuda.hpp"

namespace dstune::cuda {

void StreamQueues::prepare(const Numbers& numbers, const Waiter& waiter) {
  waiter_ = waiter;
  finish_all();
  drain();
  const auto queues = static_cast<std::size_t>(numbers.queues);
  while (streams_.size() < queues) {
    Stream made = nullptr;
    check(runtime_, runtime_.create_stream(made), "making a stream");
    streams_.emplace_back(Owned{&runtime_, made});
  }
  // To wait for one that is not recorded yet is to wait for nothing; one of an earlier use that a
  // graph was captured with could not be waited for at all.
  events_.clear();
  grow(events_, numbers.events, false);
  grow(stamps_, numbers.stamps, true);
  grow(ends_, static_cast<int>(streams_.size()), false);
  use(0);
}

void StreamQueues::grow(std::vector<UniqueEvent>& events, int count, bool takes_time) {
  while (events.size() < static_cast<std::size_t>(count)) {
    Event made = nullptr;
    check(runtime_, runtime_.create_event(made, takes_time), "making an event");
    events.emplace_back(Owned{&runtime_, made});
  }
}

void StreamQueues::use(int queue) {
  used_ = static_cast<std::size_t>(queue);
  kernels::set_cuda_stream(stream(used_));
}

void StreamQueues::record(int event) {
  check(runtime_, runtime_.record(at(events_, event), stream(used_)), "recording an event");
}

void StreamQueues::wait(int event) {
  check(runtime_, runtime_.wait(stream(used_), at(events_, event)), "making a stream wait");
}

void StreamQueues::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  check(runtime_, runtime_.copy(to, from, static_cast<std::size_t>(bytes), stream(used_)),
        "copying between the GPU and its host");
}

void StreamQueues::await(Event event) {
  const auto is_reached = [&] {
    const Code code = runtime_.query(event);
    if (code == runtime_.not_ready()) return false;
    check(runtime_, code, "waiting for the GPU");
    return true;
  };
  waiter_.until(is_reached, "the GPU to do what it was asked for");
}

void StreamQueues::finish(int event) {
  await(at(events_, event));
}

void StreamQueues::record_end(std::size_t queue) {
  check(runtime_, runtime_.record(at(ends_, static_cast<int>(queue)), stream(queue)),
        "recording an event");
}

void StreamQueues::finish_used() {
  record_end(used_);
  await(at(ends_, static_cast<int>(used_)));
}

void StreamQueues::finish_all() {
  // There are more streams if making the last ones failed.
  for (std::size_t queue = 0; queue < ends_.size(); ++queue) record_end(queue);
  for (const UniqueEvent& end : ends_) await(end.value().object);
  may_be_at_graph_ = false;
}

void StreamQueues::stamp(int stamp) {
  const Event event = at(stamps_, stamp);
  check(runtime_,
        is_recording_ ? runtime_.record_in_graph(event, stream(used_))
                      : runtime_.record(event, stream(used_)),
        "recording an event");
}

double StreamQueues::seconds_between(int first, int second) {
  float milliseconds = 0;
  check(runtime_, runtime_.get_milliseconds(milliseconds, at(stamps_, first), at(stamps_, second)),
        "reading the time between two events");
  return static_cast<double>(milliseconds) * 1e-3;
}

/// Recordings: the work that queues are asked for as a graph.

GraphRecording::~GraphRecording() {
  queues.drop(std::move(executable));
}

void StreamQueues::drop(UniqueHandle<ExecutableTraits> executable) noexcept {
  if (may_be_at_graph_) dropped_.push_back(std::move(executable));
}

void StreamQueues::drain() noexcept {
  may_be_at_graph_ = false;
  dropped_.clear();
}

void StreamQueues::fork() {
  record_end(0);
  for (std::size_t queue = 1; queue < ends_.size(); ++queue)
    check(runtime_, runtime_.wait(stream(queue), at(ends_, 0)), "making a stream wait");
}

void StreamQueues::join() {
  for (std::size_t queue = 1; queue < ends_.size(); ++queue) {
    record_end(queue);
    check(runtime_, runtime_.wait(stream(0), at(ends_, static_cast<int>(queue))),
          "making a stream wait");
  }
}

void StreamQueues::begin(int first_stamp) {
  use(0);
  check(runtime_, runtime_.begin_capture(stream(0)), "beginning to capture a graph");
  is_recording_ = true;
  first_stamp_ = first_stamp;
  // Work that waits for a captured stream is captured, too.
  fork();
}

std::unique_ptr<Recording> StreamQueues::end() {
  join();
  use(0);
  is_recording_ = false;
  Graph captured = nullptr;
  check(runtime_, runtime_.end_capture(stream(0), captured), "capturing a graph");
  UniqueHandle<GraphTraits> graph(Owned{&runtime_, captured});
  std::vector<EventNode> nodes;
  check(runtime_, runtime_.get_event_nodes(captured, nodes), "looking into a graph");
  std::vector<GraphRecording::Stamp> stamps;
  for (const EventNode& node : nodes) {
    const auto found = std::ranges::find_if(
        stamps_, [&](const UniqueEvent& stamp) { return stamp.value().object == node.event; });
    // NCCL records events of its own.
    if (found != stamps_.end())
      stamps.push_back({node.node, static_cast<int>(found - stamps_.begin()) - first_stamp_});
  }
  ExecutableGraph made = nullptr;
  check(runtime_, runtime_.instantiate(made, captured), "making a graph that can be launched");
  UniqueHandle<ExecutableTraits> executable(Owned{&runtime_, made});
  // So that memory lacks here and not at a launch, of which peers are told nothing.
  check(runtime_, runtime_.upload(made, stream(0)), "loading a graph to the GPU");
  return std::make_unique<GraphRecording>(*this, std::move(graph), std::move(executable),
                                          std::move(stamps));
}

void StreamQueues::drop() noexcept {
  use(0);
  if (!is_recording_) return;
  is_recording_ = false;
  Graph captured = nullptr;
  if (runtime_.end_capture(stream(0), captured) != 0) runtime_.forget_error();
  if (captured != nullptr) runtime_.destroy_graph(captured);
}

void StreamQueues::replay(Recording& recording, int first_stamp) {
  const auto& graph = dynamic_cast<GraphRecording&>(recording);
  const ExecutableGraph executable = graph.executable.value().object;
  for (const auto& [node, number] : graph.stamps) {
    check(runtime_, runtime_.set_event(executable, node, at(stamps_, first_stamp + number)),
          "choosing the events of a graph");
  }
  join();
  use(0);
  may_be_at_graph_ = true;
  check(runtime_, runtime_.launch(executable, stream(0)), "launching a graph");
  fork();
}

}  // namespace dstune::cuda
