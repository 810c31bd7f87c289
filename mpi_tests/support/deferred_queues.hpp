#pragma once
/// Queues that do nothing before it is waited for, and then no more than that takes: who looks at a
/// result without a finish() finds what was there before, and so does who changes a source too
/// early.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/device/queues.hpp"

namespace dstune::test {

class DeferredQueues : public Queues {
 public:
  explicit DeferredQueues(int queues = 1, int events = 0, Waiter waiter = {}) {
    prepare({queues, events, 0}, waiter);
  }

  void prepare(const Numbers& numbers, const Waiter& waiter) override {
    waiter_ = waiter;
    finish_all();
    queues_.assign(static_cast<std::size_t>(numbers.queues), {});
    events_.assign(static_cast<std::size_t>(numbers.events), {});
    used_ = 0;
  }
  void use(int queue) override {
    require(queue >= 0 && queue < static_cast<int>(queues_.size()), "a queue that was prepared");
    used_ = static_cast<std::size_t>(queue);
  }
  void record(int event) override { at(event) = {used_, used().end()}; }
  void wait(int event) override {
    // The place that was recorded last, not what is recorded later.
    add([this, place = at(event)] { run(place); });
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    add([=] { std::memmove(to, from, static_cast<std::size_t>(bytes)); });
  }
  void finish(int event) override { until_done(at(event)); }
  void finish_used() override { until_done({used_, used().end()}); }
  void finish_all() override {
    for (std::size_t queue = 0; queue < queues_.size(); ++queue)
      until_done({queue, queues_[queue].end()});
  }
  void stamp(int) override {}
  double seconds_between(int, int) override { return 0; }
  /// Distinct for each queue; what add_to() takes.
  [[nodiscard]] void* native() const override {
    return const_cast<Queue*>(&queues_[used_]);  // NOLINT: a handle, as a library gets one
  }

  /// Work of a library in a queue, given by its native().
  void add_to(void* native, std::function<void()> task) {
    require(number_of(native) < static_cast<int>(queues_.size()), "a queue of this device");
    static_cast<Queue*>(native)->tasks.push_back(std::move(task));
  }
  [[nodiscard]] int number_of(const void* native) const {
    int number = 0;
    while (number < static_cast<int>(queues_.size()) &&
           native != &queues_[static_cast<std::size_t>(number)])
      ++number;
    return number;
  }
  /// What was asked for and not done yet, in all queues.
  [[nodiscard]] std::size_t num_waiting() const {
    std::size_t waiting = 0;
    for (const Queue& queue : queues_) waiting += queue.tasks.size();
    return waiting;
  }
  /// From now on nothing is ever done.
  void get_stuck() { is_stuck_ = true; }

 private:
  struct Queue {
    std::deque<std::function<void()>> tasks;
    std::size_t done = 0;
    [[nodiscard]] std::size_t end() const { return done + tasks.size(); }
  };
  /// Behind so many tasks of a queue; 0: reached from the start.
  struct Place {
    std::size_t queue = 0;
    std::size_t tasks = 0;
  };

  Queue& used() { return queues_[used_]; }
  Place& at(int event) { return events_.at(static_cast<std::size_t>(event)); }
  void add(std::function<void()> task) { used().tasks.push_back(std::move(task)); }
  void run(const Place& place) {
    Queue& queue = queues_[place.queue];
    while (queue.done < place.tasks) {
      const auto task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
      ++queue.done;
      task();
    }
  }
  void until_done(const Place& place) {
    if (queues_[place.queue].done >= place.tasks) return;
    if (is_stuck_) waiter_.until([] { return false; }, "finishing a queue");
    run(place);
  }

  Waiter waiter_;
  std::vector<Queue> queues_;
  std::vector<Place> events_;
  std::size_t used_ = 0;
  bool is_stuck_ = false;
};

}  // namespace dstune::test
