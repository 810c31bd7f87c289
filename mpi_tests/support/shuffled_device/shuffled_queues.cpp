#include "shuffled_queues.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune::test {
namespace {

thread_local ShuffledQueues* current_queues = nullptr;
/// That a queue is more or less urgent after something was done: one queue runs ahead as far as it
/// can, or they take turns.
constexpr std::array<double, 3> chances_of_change{0.02, 0.3, 1};

}  // namespace

struct ShuffledQueues::Noted : Recording {
  std::vector<std::function<void(int first_stamp)>> asked;
};

ShuffledQueues::ShuffledQueues(ProtectedMemory& memory, std::uint64_t seed)
    : memory_(memory), random_(seed) {}

ShuffledQueues::~ShuffledQueues() = default;

ShuffledQueues& ShuffledQueues::current() {
  require(current_queues != nullptr, "a queue is used before anything is asked for");
  return *current_queues;
}

void ShuffledQueues::prepare(const Numbers& numbers, const Waiter& /*waiter*/) {
  finish_all();
  queues_.assign(static_cast<std::size_t>(numbers.queues), {});
  events_.assign(static_cast<std::size_t>(numbers.events), {});
  stamps_.assign(static_cast<std::size_t>(numbers.stamps), {});
  chance_of_change_ = chances_of_change.at(random_() % chances_of_change.size());
  // Each as late as it can be, or in between.
  for (Queue& queue : queues_) {
    queue.urgency = chance();
    queue.eagerness = chance() < 0.5 ? 0 : chance();
  }
  use(0);
}

void ShuffledQueues::use(int queue) {
  used_ = static_cast<std::size_t>(queue);
  require(used_ < queues_.size(), "a queue is one of those prepared");
  current_queues = this;
}

void ShuffledQueues::add(Item item) {
  item.asked = asked_++;
  Queue& used = queues_.at(used_);
  used.items.push_back(std::move(item));
  if (chance() < used.eagerness && can_go_on(used)) go_on();
}

bool ShuffledQueues::note(std::function<void(int first_stamp)> asking) {
  if (noted_ == nullptr) return false;
  noted_->asked.push_back(
      [this, queue = static_cast<int>(used_), asking = std::move(asking)](int first_stamp) {
        use(queue);
        asking(first_stamp);
      });
  return true;
}

void ShuffledQueues::begin(int first_stamp) {
  use(0);
  noted_ = std::make_unique<Noted>();
  first_stamp_ = first_stamp;
  recording_ = ++recorded_ + replayed_;
}

std::unique_ptr<Recording> ShuffledQueues::end() {
  if (refuses_) throw DeviceError("recordings are refused");
  recording_ = 0;
  use(0);
  return std::move(noted_);
}

void ShuffledQueues::drop() noexcept {
  noted_.reset();
  recording_ = 0;
  used_ = 0;
}

void ShuffledQueues::replay(Recording& recording, int first_stamp) {
  recording_ = recorded_ + ++replayed_;
  for (const auto& asking : dynamic_cast<Noted&>(recording).asked) asking(first_stamp);
  recording_ = 0;
  use(0);
}

void ShuffledQueues::record(int event) {
  Event& recorded = events_.at(static_cast<std::size_t>(event));
  recorded.recording = recording_;
  if (note([=, this](int) { record(event); })) return;
  const std::int64_t number = ++recorded.recorded;
  add({.kind = Kind::record, .event = event, .number = number});
}

void ShuffledQueues::wait(int event) {
  const Event& awaited = events_.at(static_cast<std::size_t>(event));
  require(awaited.recording == recording_, "an event is waited for where it was recorded");
  if (note([=, this](int) { wait(event); })) return;
  const std::int64_t number = awaited.recorded;
  if (number > 0) add({.kind = Kind::wait, .event = event, .number = number});
}

void ShuffledQueues::copy(void* to, const void* from, std::int64_t bytes) {
  ask([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}

void ShuffledQueues::stamp(int stamp) {
  const int offset = stamp - first_stamp_;
  if (note([=, this](int first_stamp) { this->stamp(first_stamp + offset); })) return;
  ask([this, stamp] { stamps_.at(static_cast<std::size_t>(stamp)) = Clock::now(); });
}

double ShuffledQueues::seconds_between(int first, int second) {
  const auto at = [&](int stamp) { return stamps_.at(static_cast<std::size_t>(stamp)); };
  return std::chrono::duration<double>(at(second) - at(first)).count();
}

void ShuffledQueues::ask(std::function<void()> work) {
  if (note([=, this](int) { ask(work); })) return;
  add({.work = std::move(work)});
}

void ShuffledQueues::ask_for_collective(std::function<void()> work) {
  if (note([=, this](int) { ask_for_collective(work); })) return;
  add({.work = std::move(work), .collective = collectives_++});
}

bool ShuffledQueues::can_go_on(const Queue& queue) const {
  if (queue.items.empty()) return false;
  const Item& item = queue.items.front();
  if (item.collective >= 0) return item.collective == next_collective_;
  return item.kind != Kind::wait ||
         events_[static_cast<std::size_t>(item.event)].reached >= item.number;
}

void ShuffledQueues::go_on() {
  Queue* next = nullptr;
  std::int64_t oldest = asked_;
  for (Queue& queue : queues_) {
    if (!queue.items.empty()) oldest = std::min(oldest, queue.items.front().asked);
    if (chance() < chance_of_change_) queue.urgency = chance();
    if (can_go_on(queue) && (next == nullptr || queue.urgency > next->urgency)) next = &queue;
  }
  require(next != nullptr, "queues wait for each other");
  Item item = std::move(next->items.front());
  next->items.pop_front();
  if (item.asked > oldest) ++overtaken_;
  ++done_;
  if (item.kind == Kind::record) {
    std::int64_t& reached = events_[static_cast<std::size_t>(item.event)].reached;
    reached = std::max(reached, item.number);
  } else if (item.work) {
    if (item.collective >= 0) ++next_collective_;
    const ProtectedMemory::Opened opened(memory_);
    item.work();
  }
}

template <class Done>
void ShuffledQueues::go_on_until(Done&& done) {
  require(noted_ == nullptr, "the host waits for nothing while it is recorded");
  ++host_waits_;
  const ProtectedMemory::Opened opened(memory_);
  while (!done()) go_on();
}

void ShuffledQueues::finish(int event) {
  const Event& awaited = events_.at(static_cast<std::size_t>(event));
  require(awaited.recording == 0, "the host waits for no event of a recording");
  const std::int64_t number = awaited.recorded;
  go_on_until([&] { return awaited.reached >= number; });
}

void ShuffledQueues::finish_used() {
  go_on_until([&] { return queues_.at(used_).items.empty(); });
}

void ShuffledQueues::finish_all() {
  go_on_until([&] {
    return std::ranges::all_of(queues_, [](const Queue& queue) { return queue.items.empty(); });
  });
}

}  // namespace dstune::test
