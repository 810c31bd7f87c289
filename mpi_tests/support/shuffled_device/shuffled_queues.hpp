#pragma once
/// Queues that do what they are asked for later, in an order that only their own rules and a seed
/// decide: as late as the host lets them, or earlier.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "dstune/device/queues.hpp"
#include "protected_memory.hpp"

namespace dstune::test {

/// Work that lies in different queues is done in any order that the events allow; some of it is
/// done when it is asked for, the rest when the host waits for it. Collectives keep the order of
/// the program: the ranks of a group would wait for each other for ever.
class ShuffledQueues : public Queues {
 public:
  /// The memory can be touched only while work is done.
  ShuffledQueues(ProtectedMemory& memory, std::uint64_t seed) : memory_(memory), random_(seed) {}

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
  [[nodiscard]] void* native() const override { return nullptr; }

  /// Work for the used queue.
  void ask(std::function<void()> work);
  void ask_for_collective(std::function<void()> work);
  /// The queues that the calling thread used last.
  static ShuffledQueues& current();
  /// Work that was done, and how much of it before work that had been asked for earlier.
  [[nodiscard]] std::int64_t done() const { return done_; }
  [[nodiscard]] std::int64_t overtaken() const { return overtaken_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Kind { work, record, wait };
  struct Item {
    Kind kind = Kind::work;
    std::function<void()> work = nullptr;
    int event = -1;
    std::int64_t number = 0;  ///< of the event's records: the one that is made, or waited for
    std::int64_t collective = -1;
    std::int64_t asked = 0;
  };
  struct Queue {
    std::deque<Item> items;
    double urgency = 0;    ///< among those that can go on
    double eagerness = 0;  ///< chance that something is done when it is asked for
  };
  struct Event {
    std::int64_t recorded = 0, reached = 0;
  };

  void add(Item item);
  [[nodiscard]] bool can_go_on(const Queue& queue) const;
  /// The next item of one of the queues that can go on. LogicError where none can.
  void go_on();
  template <class Done>
  void go_on_until(Done&& done);
  double chance() { return std::uniform_real_distribution<>(0, 1)(random_); }

  ProtectedMemory& memory_;
  std::mt19937_64 random_;
  std::vector<Queue> queues_;
  std::vector<Event> events_;
  std::vector<Clock::time_point> stamps_;
  double chance_of_change_ = 0;
  std::size_t used_ = 0;
  std::int64_t asked_ = 0, done_ = 0, overtaken_ = 0;
  std::int64_t collectives_ = 0, next_collective_ = 0;
};

}  // namespace dstune::test
