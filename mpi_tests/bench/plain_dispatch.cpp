// What MPI and the disk take by themselves: a plain program with the same durable records as a job
// of empty experiments on groups of two ranks. Rank 0 writes that an experiment starts and that it
// ended, with fdatasync before anything follows from it, and takes part in the first group.
//   mpirun -np RANKS plain_dispatch FILE [experiments, 4000 unless given]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

namespace {

constexpr int order_tag = 1, outcome_tag = 2;
constexpr std::size_t order_bytes = 1500, started_bytes = 196, finished_bytes = 1300;

void fail(const char* what) {
  std::perror(what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// A file that grows by lines, durable when commit() returns.
class Records {
 public:
  explicit Records(const char* path)
      : file_(::open(path, O_WRONLY | O_CREAT | O_APPEND | O_EXCL, 0666)) {
    if (file_ < 0) fail(path);
  }
  void add(std::size_t bytes) { pending_ += std::string(bytes - 1, 'x') + "\n"; }
  void commit() {
    if (pending_.empty()) return;
    if (::write(file_, pending_.data(), pending_.size()) != static_cast<ssize_t>(pending_.size()) ||
        ::fdatasync(file_) != 0)
      fail("write");
    pending_.clear();
    ++num_syncs_;
  }
  [[nodiscard]] int num_syncs() const { return num_syncs_; }

 private:
  int file_;
  int num_syncs_ = 0;
  std::string pending_;
};

/// Rank 0: gives experiments to idle groups, and takes part in the first one's without waiting.
class Dispatcher {
 public:
  Dispatcher(const char* path, int num_groups, int num_experiments, MPI_Comm group)
      : records_(path), num_left_(num_experiments), group_(group) {
    for (int one = 0; one < num_groups; ++one) idle_.push_back(one);
  }
  void run() {
    const std::string order(order_bytes, 'o');
    int num_running = 0;
    while (num_left_ > 0 || num_running > 0) {
      num_running -= hear();
      std::vector<int> begin;
      for (; num_left_ > 0 && !idle_.empty(); --num_left_) {
        begin.push_back(idle_.back());
        idle_.pop_back();
        records_.add(started_bytes);
      }
      records_.commit();
      for (const int one : begin) {
        ++num_running;
        for (const int member : {2 * one, 2 * one + 1})
          if (member != 0)
            MPI_Send(order.data(), static_cast<int>(order.size()), MPI_BYTE, member, order_tag,
                     MPI_COMM_WORLD);
        if (one == 0) MPI_Ibarrier(group_, &own_);
      }
    }
  }
  [[nodiscard]] int num_syncs() const { return records_.num_syncs(); }

 private:
  /// Returns how many experiments have ended.
  int hear() {
    int count = 0, flag = 0;
    if (own_ != MPI_REQUEST_NULL) {
      MPI_Test(&own_, &flag, MPI_STATUS_IGNORE);
      if (flag != 0) count += end(0);
    }
    for (MPI_Status status;;) {
      MPI_Iprobe(MPI_ANY_SOURCE, outcome_tag, MPI_COMM_WORLD, &flag, &status);
      if (flag == 0) break;
      std::vector<char> outcome(finished_bytes);
      MPI_Recv(outcome.data(), static_cast<int>(outcome.size()), MPI_BYTE, status.MPI_SOURCE,
               outcome_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      count += end(status.MPI_SOURCE / 2);
    }
    return count;
  }
  int end(int group) {
    records_.add(finished_bytes);
    idle_.push_back(group);
    return 1;
  }

  Records records_;
  int num_left_;
  MPI_Comm group_;
  MPI_Request own_ = MPI_REQUEST_NULL;
  std::vector<int> idle_;
};

void work(int rank, MPI_Comm group) {
  std::vector<char> order(order_bytes);
  const std::string outcome(finished_bytes, 'f');
  for (MPI_Status status;;) {
    MPI_Recv(order.data(), static_cast<int>(order.size()), MPI_BYTE, 0, order_tag, MPI_COMM_WORLD,
             &status);
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes == 0) return;
    MPI_Request together{};
    MPI_Ibarrier(group, &together);
    MPI_Wait(&together, MPI_STATUS_IGNORE);
    if (rank % 2 == 0)
      MPI_Send(outcome.data(), static_cast<int>(outcome.size()), MPI_BYTE, 0, outcome_tag,
               MPI_COMM_WORLD);
  }
}

double processor_s() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2 || size < 2 || size % 2 != 0) {
    if (rank == 0) std::fprintf(stderr, "usage: mpirun -np EVEN plain_dispatch FILE [N]\n");
    MPI_Finalize();
    return 2;
  }
  const int num_experiments = argc > 2 ? std::atoi(argv[2]) : 4000;
  MPI_Comm group{};
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &group);
  MPI_Barrier(MPI_COMM_WORLD);
  const double before_s = processor_s();
  double taken_s = 0;
  int num_syncs = 0;
  if (rank == 0) {
    Dispatcher dispatcher(argv[1], size / 2, num_experiments, group);
    const auto began = std::chrono::steady_clock::now();
    dispatcher.run();
    taken_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    num_syncs = dispatcher.num_syncs();
    for (int other = 1; other < size; ++other)
      MPI_Send(nullptr, 0, MPI_BYTE, other, order_tag, MPI_COMM_WORLD);
  } else {
    work(rank, group);
  }
  double spent_s = processor_s() - before_s, all_s = 0;
  MPI_Reduce(&spent_s, &all_s, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf(
        "plain MPI: %d experiments in %.3f s: %.0f/s; %d syncs; %.0f us of processor time "
        "an experiment\n",
        num_experiments, taken_s, num_experiments / taken_s, num_syncs,
        1e6 * all_s / num_experiments);
  MPI_Comm_free(&group);
  MPI_Finalize();
  return 0;
}
