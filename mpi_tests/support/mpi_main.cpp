// The main of tests that run under mpirun. A failure on one rank fails all, rank 0 prints, the
// others print their failures only, a watchdog names a hung test, and exit code 77 says that every
// test was skipped.
#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <mpi.h>

#include "agreement.hpp"
#include "watchdog.hpp"

namespace {

// Ranks other than 0 neither print nor write result files, and all shuffle alike.
void tell_ranks_apart(int world_rank) {
  int seed = testing::GTEST_FLAG(random_seed);
  if (testing::GTEST_FLAG(shuffle) && seed == 0) seed = 1;
  MPI_Bcast(&seed, 1, MPI_INT, 0, MPI_COMM_WORLD);
  testing::GTEST_FLAG(random_seed) = seed;
  if (world_rank == 0) return;
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  delete listeners.Release(listeners.default_xml_generator());
  listeners.Append(new dstune::test::FailurePrinter(world_rank));
}

int run_tests(int world_rank) {
  tell_ranks_apart(world_rank);
  dstune::test::Watchdog watchdog("rank " + std::to_string(world_rank),
                                  [] { dstune::test::end_all_ranks(); });
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  listeners.Append(new dstune::test::WatchdogListener(watchdog));
  auto* agreement = new dstune::test::Agreement(watchdog);
  listeners.Append(agreement);
  const bool failed = RUN_ALL_TESTS() != 0;
  const int exit_code = agreement->exit_code(failed);
  watchdog.watch("MPI_Finalize");
  agreement->close();
  MPI_Finalize();
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  int thread_level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) {
    const int exit_code = world_rank == 0 ? RUN_ALL_TESTS() : 0;
    MPI_Finalize();
    return exit_code;
  }
  return run_tests(world_rank);
}
