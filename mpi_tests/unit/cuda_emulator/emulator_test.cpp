// The emulator finds what it promises to find, and kernels that are right pass.
#include "emulator.hpp"

#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#define DSTUNE_ISA emulated
#include "access.hpp"
#include "thrown.hpp"

namespace dstune::test {
namespace {

using kernels::cuda::Grid;

constexpr Grid two_warps{.blocks = 1, .threads = 64, .shared_bytes = 64 * sizeof(float)};

std::string fault_of(const Grid& grid, const std::function<void(EmulatedThread&)>& kernel) {
  const std::string words = thrown<std::logic_error>([&] { launch(grid, kernel); });
  return words.empty() ? "none" : words;
}

template <class Check>
void in_every_order(Check&& check) {
  for (const int order : {0, 1, 2}) {
    SCOPED_TRACE(order);
    set_emulated_order(order);
    check();
  }
  set_emulated_order(0);
}

TEST(EmulatorTest, RunsEveryThreadOnce) {
  in_every_order([&] {
    std::vector<int> seen(3 * 2 * 64);
    launch({.blocks = 3, .threads = 64, .pieces = 2}, [&](EmulatedThread& t) {
      EXPECT_EQ(t.blocks, 3);
      EXPECT_EQ(t.pieces, 2);
      EXPECT_EQ(t.threads, 64);
      ++seen[static_cast<std::size_t>((t.piece * 3 + t.block) * 64 + t.thread)];
    });
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  });
}

TEST(EmulatorTest, OrdersDiffer) {
  std::set<std::vector<int>> orders;
  in_every_order([&] {
    std::vector<int> met;
    launch({.blocks = 1, .threads = 64}, [&](EmulatedThread& t) { met.push_back(t.thread); });
    orders.insert(met);
  });
  EXPECT_EQ(orders.size(), 3U);
}

TEST(EmulatorTest, ABarrierLetsThreadsSeeEachOthersWrites) {
  in_every_order([&] {
    EXPECT_EQ(fault_of(two_warps,
                       [](EmulatedThread& t) {
                         const EmulatedShared<float> shared(&t, 0);
                         for (int round = 0; round < 3; ++round) {
                           shared[t.thread] = static_cast<float>(t.thread + round);
                           t.sync();
                           EXPECT_EQ(static_cast<float>(shared[63 - t.thread]),
                                     static_cast<float>(63 - t.thread + round));
                           t.sync();
                         }
                       }),
              "none");
  });
}

TEST(EmulatorTest, LanesOfAWarpExchange) {
  in_every_order([&] {
    launch(two_warps, [](EmulatedThread& t) {
      for (std::uint64_t round = 0; round < 5; ++round) {
        const std::uint64_t* brought =
            t.exchange(static_cast<std::uint64_t>(t.thread) * 10 + round);
        for (std::uint64_t lane = 0; lane < 32; ++lane) {
          const auto first = static_cast<std::uint64_t>(t.thread / 32 * 32);
          EXPECT_EQ(brought[lane], (first + lane) * 10 + round);
        }
      }
    });
  });
}

// In every order, since a run in one of them may look right.
void expect_fault(const Grid& grid, const char* words,
                  const std::function<void(EmulatedThread&)>& kernel) {
  in_every_order([&] {
    EXPECT_NE(fault_of(grid, kernel).find(words), std::string::npos)
        << words << ": " << fault_of(grid, kernel);
  });
}

TEST(EmulatorTest, FindsRaces) {
  expect_fault(two_warps, "a race: read", [](EmulatedThread& t) {
    const EmulatedShared<float> shared(&t, 0);
    shared[t.thread] = 1.0F;
    t.sync();
    if (t.thread == 5) shared[5] = 2.0F;
    if (t.thread == 5) t.exchange(0);
    if (t.thread / 32 == 0 && t.thread != 5) {
      t.exchange(0);
      static_cast<void>(static_cast<float>(shared[5]));
    }
  });
  expect_fault(two_warps, "a race", [](EmulatedThread& t) {
    const EmulatedShared<float> shared(&t, 0);
    shared[t.thread] = 1.0F;
    t.sync();
    const float other = shared[(t.thread + 1) % 64];
    shared[t.thread] = other;
  });
  expect_fault(two_warps, "a race: written", [](EmulatedThread& t) {
    EmulatedShared<float>(&t, 0)[0] = static_cast<float>(t.thread);
  });
}

TEST(EmulatorTest, FindsMissingBarrierOfABlocksReduction) {
  expect_fault(two_warps, "a race", [](EmulatedThread& t) {
    const EmulatedShared<float> shared(&t, 0);
    for (int round = 0; round < 2; ++round) {
      if (t.thread % 32 == 0) shared[t.thread / 32] = 1.0F;
      t.sync();
      EXPECT_EQ(shared[0] + shared[1], 2.0F);
      // Here one is missing before the next round writes.
    }
  });
}

TEST(EmulatorTest, FindsReadsOfNothingAndOutside) {
  expect_fault(two_warps, "before it is written", [](EmulatedThread& t) {
    static_cast<void>(static_cast<float>(EmulatedShared<float>(&t, 0)[t.thread]));
  });
  expect_fault(two_warps, "outside the launch's",
               [](EmulatedThread& t) { EmulatedShared<float>(&t, 4)[t.thread] = 1.0F; });
  expect_fault(two_warps, "outside the launch's", [](EmulatedThread& t) {
    static_cast<void>(static_cast<float>(EmulatedShared<float>(&t, 0)[-1]));
  });
}

TEST(EmulatorTest, FindsElementsWhereNoneCanBe) {
  expect_fault(two_warps, "can be", [](EmulatedThread& t) {
    if (t.thread == 3) EmulatedShared<double>(&t, 4)[0] = 1.0;
  });
}

TEST(EmulatorTest, FindsPiecesOfMemoryWhereNoneCanBegin) {
  struct alignas(16) Pack {
    float of[4];
  };
  alignas(16) float memory[8] = {};
  for (const int offset : {0, 1, 2, 4}) {
    const std::string fault = fault_of(two_warps, [&](EmulatedThread&) {
      kernels::emulated::at_once<Pack>(&memory[offset]).of[0] = 1.0F;
    });
    const bool can_begin = offset % 4 == 0;
    EXPECT_EQ(fault.substr(0, 6), can_begin ? "none" : "memory") << offset;
    EXPECT_EQ(memory[offset], can_begin ? 1.0F : 0.0F) << offset;
  }
}

TEST(EmulatorTest, FindsThreadsThatDoNotArrive) {
  expect_fault(two_warps, "not all threads arrive", [](EmulatedThread& t) {
    if (t.thread != 7) t.sync();
  });
  expect_fault(two_warps, "not all threads arrive", [](EmulatedThread& t) {
    if (t.thread != 7) t.exchange(0);
  });
  expect_fault(two_warps, "not all threads arrive", [](EmulatedThread& t) {
    if (t.thread < 32) {
      t.sync();
    } else {
      t.exchange(0);
      if (t.thread == 40) t.exchange(0);
    }
  });
  // What was abandoned disturbs nobody.
  EXPECT_EQ(fault_of(two_warps, [](EmulatedThread& t) { t.sync(); }), "none");
}

TEST(EmulatorTest, RefusesWhatNoGpuCanLaunch) {
  constexpr std::pair<Grid, const char*> refused[] = {
      {{.blocks = 0}, "a launch of nothing"},
      {{.pieces = 0}, "a launch of nothing"},
      {{.blocks = std::int64_t{1} << 31}, "too many blocks"},
      {{.pieces = 65536}, "too many blocks"},
      {{.threads = 288}, "too many threads in a block"},
      {{.threads = 33}, "a block of broken warps"},
      {{.shared_bytes = 166913}, "too much shared memory"}};
  for (const auto& [grid, words] : refused)
    EXPECT_EQ(fault_of(grid, [](EmulatedThread&) {}), words);
}

}  // namespace
}  // namespace dstune::test
