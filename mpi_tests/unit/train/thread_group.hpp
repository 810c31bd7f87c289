#pragma once
/// Groups without MPI: one rank, or the threads of a process as ranks that can exchange numbers.

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune::test {

/// Where the threads meet. A thread that leaves early ends the others' waits.
class Rendezvous {
 public:
  explicit Rendezvous(int ranks) : numbers_(static_cast<std::size_t>(ranks)) {}

  std::vector<double> exchange(int rank, std::span<const double> mine) {
    std::unique_lock lock(mutex_);
    const long round = round_;
    numbers_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    if (++arrived_ == numbers_.size()) {
      result_.clear();
      for (const auto& part : numbers_) result_.insert(result_.end(), part.begin(), part.end());
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round || left_; });
      if (round_ == round) throw CollectiveError(CollectiveError::Cause::aborted, "a peer left");
    }
    return result_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<double>> numbers_;
  std::vector<double> result_;
  std::size_t arrived_ = 0;
  long round_ = 0;
  bool left_ = false;
};

class ThreadGroup : public ProcessGroup {
 public:
  /// World ranks 10, 11, …: never mistaken for group ranks.
  ThreadGroup(Rendezvous& rendezvous, int group_rank, int size)
      : ProcessGroup(group_rank, world_ranks_of(size)), rendezvous_(rendezvous) {}

  void all_reduce(void*, std::int64_t, DType, Reduction, const RankRange&) override { refuse(); }
  void reduce_average(void*, std::int64_t, DType, int) override { refuse(); }
  void reduce_scatter_average(void* out, const void* in, std::int64_t count, DType type,
                              const RankRange&) override {
    copy(out, in, count, type);
  }
  void all_gather(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange&) override {
    copy(out, in, count, type);
  }
  void all_to_all(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange&) override {
    copy(out, in, count, type);
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    std::ranges::copy(rendezvous_.exchange(group_rank(), mine), all.begin());
  }

 private:
  static std::vector<int> world_ranks_of(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 10);
    return ranks;
  }
  /// A mean over one rank is no work; more ranks are for the tests under MPI.
  void refuse() const { require(size() == 1, "threads exchange numbers only"); }
  void copy(void* out, const void* in, std::int64_t count, DType type) const {
    refuse();
    if (out != in) std::memcpy(out, in, static_cast<std::size_t>(count * size_bytes(type)));
  }

  Rendezvous& rendezvous_;
};

/// Runs a body on so many ranks and returns what each threw, null where nothing.
inline std::vector<std::exception_ptr> run_ranks(int ranks,
                                                 const std::function<void(ProcessGroup&)>& body) {
  Rendezvous rendezvous(ranks);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadGroup group(rendezvous, rank, ranks);
      try {
        body(group);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        rendezvous.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace dstune::test
