/// What queues are asked for as a graph.

#include <algorithm>

#include "queues.hpp"

namespace dstune::cuda {

GraphRecording::~GraphRecording() {
  queues_.drop(std::move(executable_));
}

void StreamQueues::drop(UniqueHandle<ExecutableTraits> executable) noexcept {
  if (may_be_at_graph_) dropped_.push_back(std::move(executable));
}

void StreamQueues::come_to_rest() noexcept {
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
  // What waits for a stream that is captured is captured, too.
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
  for (const auto& [node, number] : graph.stamps()) {
    check(runtime_, runtime_.set_event(graph.executable(), node, at(stamps_, first_stamp + number)),
          "choosing the events of a graph");
  }
  join();
  use(0);
  may_be_at_graph_ = true;
  check(runtime_, runtime_.launch(graph.executable(), stream(0)), "launching a graph");
  fork();
}

}  // namespace dstune::cuda
