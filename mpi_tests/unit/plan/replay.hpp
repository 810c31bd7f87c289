#pragma once
/// Plays a plan through as an executor would and writes down everything that is wrong with it:
/// memory used twice, read before it is written, touched outside a tensor's lifetime, by two
/// streams without an event between them, or from the wrong side: only a copy reaches both
/// memories, and the host's stream computes in the host's.

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dstune/plan/step_plan.hpp"

namespace dstune::test {

/// Elements that hold something: disjoint intervals begin → end.
class Intervals {
 public:
  void add(std::int64_t begin, std::int64_t end);
  void remove(std::int64_t begin, std::int64_t end);
  [[nodiscard]] bool covers(std::int64_t begin, std::int64_t end) const;

 private:
  std::map<std::int64_t, std::int64_t> parts_;
};

class Replay {
 public:
  /// `finishes`: streams know everything at the end of a step, as where the executor waits for the
  /// device there.
  explicit Replay(const StepPlan& plan, bool finishes = false);

  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  /// Figures that the plan should have of a memory.
  [[nodiscard]] const MemoryPlan& figures(Memory memory = Memory::device) const {
    return accounts_[static_cast<std::size_t>(memory)].figures;
  }

 private:
  struct Touch {
    std::int64_t begin, end, time;
    bool write;
  };
  struct State {
    bool live = false;
    Intervals written;
    std::array<std::vector<Touch>, num_streams> touches;
  };
  struct MemoryAccount {
    std::map<std::int64_t, TensorId> by_offset;  // live tensors
    std::array<std::int64_t, num_categories> live{};
    std::int64_t live_bytes = 0;
    MemoryPlan figures;
  };
  using Clock = std::array<std::int64_t, num_streams>;

  void run(const std::vector<Step>& steps, const std::string& where);
  void finish();
  void step(const Step& step);
  void acquire(TensorId tensor);
  void release(TensorId tensor);
  void access(const Access& access, int stream);
  /// Between the disk and the host: whole blocks of both.
  void check_transfer(const Access& from, const Access& to);
  void check_sides(const Step& step, const std::vector<Access>& found);
  /// The step's sums, which an operation adds to or reads.
  void check_sums(const Step& step);
  void forget_gradients();
  /// All of the own shards whose gradients this tensor holds but their padding.
  /// The same of stages 1 and 2, in a tensor of so many elements.
  void forget_own_part(std::int64_t own, Intervals& written) const;
  void forget_shards(const PlannedTensor& tensor, Intervals& written) const;
  /// The streams agree on the order of this access and every one before it that conflicts.
  void check_order(TensorId tensor, const Touch& touch, int stream);
  void problem(TensorId tensor, const std::string& what);

  const StepPlan& plan_;
  std::vector<State> states_;
  std::array<MemoryAccount, num_memories> accounts_;
  int num_live_ = 0;
  std::set<int> recorded_;
  std::map<int, Clock> events_;
  std::array<Clock, num_streams> clocks_{};  // what a stream knows of all
  /// When each stream touched the loss and the squares last.
  std::array<Clock, 2> sums_{};
  std::string where_;
  std::vector<std::string> problems_;
};

}  // namespace dstune::test
