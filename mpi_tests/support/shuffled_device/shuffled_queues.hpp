#pragma once
/// Queues that do what they are asked for later, in an order that only their own rules and a seed
/// decide: as late as the host lets them, or earlier.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dstune/device/queues.hpp"
#include "protected_memory.hpp"

namespace dstune::test {

/// Work that lies in different queues is done in any order that the events allow; some of it is
/// done when it is asked for, the rest when the host waits for it. Collectives keep the order of
/// the program: the ranks of a group would wait for each other for ever.
///
/// What is recorded is asked for again in the same order, and done in another one. What CUDA's
/// graphs do not allow is a LogicError: to wait for anything while it is recorded, or across its
/// ends for an event.
class ShuffledQueues : public Queues, private Recorder {
 public:
  /// The memory can be touched only while work is done.
  ShuffledQueues(ProtectedMemory& memory, std::uint64_t seed);
  ~ShuffledQueues() override;

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
  void begin_range(const char* name) override {
    names_.emplace(name);
    ++open_ranges_;
  }
  void end_range() noexcept override { --open_ranges_; }
  [[nodiscard]] Recorder* recorder() override { return this; }

  /// Work for the used queue.
  void ask(std::function<void()> work);
  void ask_for_collective(std::function<void()> work);
  /// The queues that the calling thread used last.
  static ShuffledQueues& current();
  static void ask_current(std::function<void()> work) { current().ask(std::move(work)); }
  /// Work that was done, and how much of it before work that had been asked for earlier.
  [[nodiscard]] std::int64_t done() const { return done_; }
  [[nodiscard]] std::int64_t overtaken() const { return overtaken_; }
  /// How often the host waited.
  [[nodiscard]] std::int64_t host_waits() const { return host_waits_; }
  /// From now on no recording comes to its end.
  void refuse_recordings() { refuses_ = true; }
  /// The names of all ranges, and how many have not ended.
  [[nodiscard]] const std::set<std::string>& names() const { return names_; }
  [[nodiscard]] int open_ranges() const { return open_ranges_; }
  /// Recordings that were made, and how often one was asked for.
  [[nodiscard]] std::int64_t recorded() const { return recorded_; }
  [[nodiscard]] std::int64_t replayed() const { return replayed_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Kind { work, record, wait };
  struct Noted;
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
    std::int64_t recording = 0;  ///< in which it was recorded last; 0: in none
  };

  void begin(int first_stamp) override;
  std::unique_ptr<Recording> end() override;
  void drop() noexcept override;
  void replay(Recording& recording, int first_stamp) override;

  /// Whether it is noted, to be asked for then, and not now.
  bool note(std::function<void(int first_stamp)> asking);
  void add(Item item);
  [[nodiscard]] bool can_go_on(const Queue& queue) const;
  /// The next item of one of the queues that can go on. LogicError where none can.
  void go_on();
  template <class Done>
  void go_on_until(Done&& done);
  double chance() { return std::uniform_real_distribution<>(0, 1)(random_); }

  std::set<std::string> names_;
  int open_ranges_ = 0;
  ProtectedMemory& memory_;
  std::mt19937_64 random_;
  std::vector<Queue> queues_;
  std::vector<Event> events_;
  std::vector<Clock::time_point> stamps_;
  double chance_of_change_ = 0;
  std::size_t used_ = 0;
  std::unique_ptr<Noted> noted_;  ///< while it is recorded
  int first_stamp_ = 0;           ///< of what is recorded
  std::int64_t recording_ = 0;    ///< that is made or asked for; 0: none
  std::int64_t recorded_ = 0, replayed_ = 0;
  bool refuses_ = false;
  std::int64_t asked_ = 0, done_ = 0, overtaken_ = 0, host_waits_ = 0;
  std::int64_t collectives_ = 0, next_collective_ = 0;
};

}  // namespace dstune::test
