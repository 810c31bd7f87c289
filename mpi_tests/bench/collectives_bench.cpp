// Microseconds of every collective by size, for shared memory and for MPI inside a node. Run it
// under mpirun with no more ranks than cores: mpirun -np 2 collectives_bench
// Over several hosts by MPI alone: two_hosts.py has the limit of the link beside it.
// Two numbers are the powers of two of the smallest and the largest size: collectives_bench 16 26
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <vector>

#include "dstune/comm/environment.hpp"
#include "dstune/group/group_table.hpp"

namespace dstune {
namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  double median_us;
  double best_us;  ///< what the machine can do where others disturb the median
};

constexpr double line_budget_us = 2e6;
constexpr std::size_t min_rounds = 3;

/// Over many rounds, each as long as its slowest rank: fewer where they are slow.
Times measure(ProcessGroup& group, std::size_t rounds, const std::function<void()>& run) {
  std::vector<double> times_us;
  double spent_us = 0;
  run();
  while (times_us.size() < rounds && (times_us.size() < min_rounds || spent_us < line_budget_us)) {
    group.exchange(std::vector<double>{0});
    const auto begin = Clock::now();
    run();
    const std::chrono::duration<double, std::micro> mine = Clock::now() - begin;
    const std::vector<double> all = group.exchange(std::vector<double>{mine.count()});
    times_us.push_back(*std::max_element(all.begin(), all.end()));
    spent_us += times_us.back();
  }
  std::sort(times_us.begin(), times_us.end());
  return {times_us[times_us.size() / 2], times_us.front()};
}

void print(const ProcessGroup& group, const char* what, std::int64_t bytes, Times times) {
  if (group.group_rank() != 0) return;
  std::printf("%-15s %10lld bytes  median %10.2f us  best %10.2f us\n", what,
              static_cast<long long>(bytes), times.median_us, times.best_us);
  std::fflush(stdout);
}

void measure_exchange(ProcessGroup& group) {
  // One alone is shorter than a look at the clock.
  constexpr int row = 1000;
  Times times = measure(group, 20, [&] {
    for (int i = 0; i < row; ++i) group.exchange(std::vector<double>{1, 2, 3});
  });
  print(group, "exchange", 24, {times.median_us / row, times.best_us / row});
}

void measure_size(ProcessGroup& group, std::int64_t bytes) {
  const std::int64_t count = bytes / 4;
  const std::int64_t part = count / group.size();
  std::vector<float> whole(static_cast<std::size_t>(count), 1);
  std::vector<float> other(static_cast<std::size_t>(count), 1);
  const auto own_part = group.group_rank() * part;
  const auto rounds =
      static_cast<std::size_t>(std::clamp<std::int64_t>((std::int64_t{1} << 30) / bytes, 10, 500));
  print(group, "all_reduce", bytes,
        measure(group, rounds, [&] { group.all_reduce_average(whole.data(), count, DType::f32); }));
  print(group, "reduce_scatter", bytes, measure(group, rounds, [&] {
          group.reduce_scatter_average(other.data(), whole.data(), part, DType::f32);
        }));
  print(group, "all_gather", bytes, measure(group, rounds, [&] {
          group.all_gather(whole.data(), whole.data() + own_part, part, DType::f32);
        }));
  print(group, "all_to_all", bytes, measure(group, rounds, [&] {
          group.all_to_all(other.data(), whole.data(), part, DType::f32);
        }));
}

void measure_all(bool use_shared_memory, const std::vector<int>& shifts) {
  const Communicator world = Communicator::world();
  const Communicator node = world.split_shared();
  const Topology topology = find_topology(world, node);
  if (use_shared_memory && node.size() < world.size()) return;
  std::vector<int> everyone(static_cast<std::size_t>(topology.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  GroupTable::Options options;
  options.use_shared_memory = use_shared_memory;
  GroupTable table(world, node, topology, {everyone}, options);
  const Waiter waiter(Clock::time_point::max(), nullptr, topology.share_core);
  const auto group = table.join(everyone, 1, waiter);
  if (topology.world_rank == 0) {
    std::printf("%d ranks, %s\n", group->size(), use_shared_memory ? "shared memory" : "MPI");
  }
  for (const int shift : shifts) measure_size(*group, std::int64_t{1} << shift);
  measure_exchange(*group);
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  dstune::MpiEnvironment mpi(argc, argv);
  std::vector<int> shifts{18, 22, 26};
  if (argc == 3) {
    shifts.clear();
    for (int shift = std::atoi(argv[1]); shift <= std::atoi(argv[2]); shift += 2)
      shifts.push_back(shift);
  }
  for (const bool use_shared_memory : {true, false}) dstune::measure_all(use_shared_memory, shifts);
  mpi.finalize();
  return 0;
}
