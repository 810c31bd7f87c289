#pragma once
/// Plays a plan through as an executor would and writes down everything that is wrong with it:
/// memory used twice, read before it is written, touched outside a tensor's lifetime, or by two
/// streams without an event between them.

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "access.hpp"

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
  explicit Replay(const StepPlan& plan);

  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  [[nodiscard]] std::int64_t highest_bytes() const { return highest_; }
  [[nodiscard]] std::int64_t peak_live_bytes() const { return peak_; }
  [[nodiscard]] const std::array<std::int64_t, num_categories>& at_peak() const { return at_peak_; }

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

  void run(const std::vector<Step>& steps, const std::string& where);
  void step(const Step& step);
  void acquire(TensorId tensor);
  void release(TensorId tensor);
  void access(const Access& access, int stream);
  void forget_gradients();
  /// The streams agree on the order of this access and every one before it that conflicts.
  void check_order(TensorId tensor, const Touch& touch, int stream);
  void problem(TensorId tensor, const std::string& what);

  const StepPlan& plan_;
  std::vector<State> states_;
  std::map<std::int64_t, TensorId> by_offset_;  // live tensors
  int num_live_ = 0;
  std::set<int> recorded_;
  using Clock = std::array<std::int64_t, num_streams>;
  std::map<int, Clock> events_;
  std::array<Clock, num_streams> clocks_{};  // what a stream knows of each
  std::array<std::int64_t, num_categories> live_{}, at_peak_{};
  std::int64_t live_bytes_ = 0, peak_ = 0, highest_ = 0;
  std::string where_;
  std::vector<std::string> problems_;
};

}  // namespace dstune::test
