#include "engine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "machine.hpp"
#include "memory.hpp"

namespace dstune::emulated {
namespace {

/// Of those that wait for another process.
constexpr std::chrono::microseconds pause{50};
/// "About a thousand", people say; nobody promises it.
constexpr std::size_t max_waiting = 1024;

[[noreturn]] void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

std::uint64_t seed() {
  const char* const order = std::getenv("DSTUNE_EMULATED_ORDER");
  return order == nullptr ? 0 : std::strtoull(order, nullptr, 10);
}

void reach(CUevent_st& event, std::int64_t number) {
  event.reached = std::max(event.reached, number);
  event.when = Clock::now();
}

/// A launch of a graph under way.
struct Launched {
  struct Node {
    Task task;
    Turn turn;
    CUevent_st* event;
    std::int64_t number;  ///< of the event's records
    std::vector<std::size_t> after;
    bool is_done = false;
  };
  std::vector<Node> nodes;
  std::size_t done = 0;

  [[nodiscard]] bool may_begin(const Node& node) const {
    return std::ranges::all_of(node.after, [&](std::size_t other) { return nodes[other].is_done; });
  }

  /// One of those that can go on; whether all are done.
  bool go_on() {
    std::vector<Node*> open;
    for (Node& node : nodes)
      if (!node.is_done && may_begin(node)) open.push_back(&node);
    std::size_t first = 0;
    if (!open.empty()) {
      const auto lock = Engine::instance().locked();
      first = Engine::instance().draw(open.size());
    }
    for (std::size_t i = 0; i < open.size(); ++i) {
      Node& node = *open[(first + i) % open.size()];
      if (node.event != nullptr) {
        const auto lock = Engine::instance().locked();
        reach(*node.event, node.number);
        node.is_done = true;
      } else {
        if (!node.turn) node.turn = node.task ? node.task() : [] { return true; };
        node.is_done = node.turn();
      }
      if (!node.is_done) continue;
      node.turn = nullptr;
      ++done;
      break;
    }
    return done == nodes.size();
  }
};

}  // namespace

Engine& Engine::instance() {
  static Engine engine;
  return engine;
}

Engine::Engine() : random_(seed()), thread_([this] { run(); }) {}

Engine::~Engine() {
  // Whether CUDA would wait here nobody says: it may.
  if (hung_gpu_ >= 0) hang();
  {
    const auto lock = locked();
    ends_ = true;
  }
  asked_.notify_all();
  thread_.join();
}

CUstream_st* Engine::make_stream(int device) {
  auto* const made = new CUstream_st;
  made->device = device;
  streams_.insert(made);
  return made;
}

void Engine::leave(CUstream_st* stream) {
  stream->is_leaving = true;
  asked_.notify_all();
}

CUstream_st* Engine::default_stream(int device) {
  while (static_cast<int>(defaults_.size()) <= device)
    defaults_.push_back(make_stream(static_cast<int>(defaults_.size())));
  return defaults_[static_cast<std::size_t>(device)];
}

void Engine::ask(CUstream_st& stream, Task task) {
  stream.tasks.push_back(std::move(task));
  asked_.notify_all();
}

void Engine::wait_for_room(std::unique_lock<std::mutex>& lock, const CUstream_st& stream) {
  wait_until(lock, [&] { return stream.tasks.size() < max_waiting; });
}

void Engine::come_back_unless_hung() const {
  if (hung_gpu_ >= 0 && machine().calls_hang) hang();
}

void Engine::wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& holds) {
  moved_.wait(lock, [&] { return fault_ != 0 || holds(); });
}

bool Engine::is_idle(int device) const {
  return std::ranges::all_of(streams_, [&](const auto* stream) {
    return stream->device != device || stream->tasks.empty();
  });
}

void Engine::run() {
  auto lock = locked();
  std::optional<Opened> opened;
  while (!ends_) {
    std::vector<CUstream_st*> busy;
    for (CUstream_st* const stream : std::vector(streams_.begin(), streams_.end())) {
      if (!stream->tasks.empty() && fault_ == 0) {
        if (stream->device != hung_gpu_) busy.push_back(stream);
      } else if (stream->is_leaving && (stream->tasks.empty() || fault_ != 0)) {
        streams_.erase(stream);
        delete stream;
      }
    }
    if (busy.empty()) {
      opened.reset();
      asked_.wait(lock);
      continue;
    }
    if (!opened) opened.emplace();
    std::ranges::shuffle(busy, random_);
    const bool moved =
        std::ranges::any_of(busy, [&](auto* stream) { return go_on(*stream, lock); });
    if (moved) {
      moved_.notify_all();
    } else {
      asked_.wait_for(lock, pause);
    }
  }
}

bool Engine::go_on(CUstream_st& stream, std::unique_lock<std::mutex>& lock) {
  if (stream.device == hung_gpu_) return false;
  // Nobody else takes what is in front.
  const Task& task = stream.tasks.front();
  lock.unlock();
  bool is_done = false;
  bool has_fault = false;
  try {
    if (!stream.turn) stream.turn = task();
    is_done = stream.turn();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "emulated GPU %d: %s\n", stream.device, error.what());
    has_fault = true;
  }
  if (is_done) stream.turn = nullptr;
  lock.lock();
  if (is_done && machine().hang.comes_to(stream.device, done_on_hanging_gpu_)) {
    hung_gpu_ = stream.device;
    return false;
  }
  if (is_done && machine().loss.comes_to(stream.device, done_on_losing_gpu_)) has_fault = true;
  if (has_fault) fault_ = cudaErrorIllegalAddress;
  if (is_done) stream.tasks.pop_front();
  return is_done || has_fault;
}

Task reaching(CUevent_st& event) {
  return [&event, number = ++event.recorded]() -> Turn {
    return [&event, number] {
      const auto lock = Engine::instance().locked();
      reach(event, number);
      return true;
    };
  };
}

Task waiting_for(CUevent_st& event) {
  return [&event, number = event.recorded]() -> Turn {
    return [&event, number] {
      const auto lock = Engine::instance().locked();
      return event.reached >= number;
    };
  };
}

Task launching(const CUgraphExec_st& executable) {
  Launched launched;
  for (const CUgraphNode_st& node : executable.nodes) {
    const std::int64_t number = node.event == nullptr ? 0 : ++node.event->recorded;
    launched.nodes.push_back({node.task, nullptr, node.event, number, node.after});
  }
  return [launched = std::move(launched)]() -> Turn {
    auto under_way = std::make_shared<Launched>(launched);
    return [under_way] { return under_way->go_on(); };
  };
}

}  // namespace dstune::emulated
