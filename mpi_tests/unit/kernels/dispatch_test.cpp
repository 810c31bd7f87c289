#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "dstune/kernels/kernels.hpp"
#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

TEST(DispatchTest, AlwaysHasThePortableTable) {
  ASSERT_NE(cpu_table("portable"), nullptr);
  EXPECT_STREQ(cpu_table("portable")->name, "portable");
  EXPECT_EQ(cpu_table("abacus"), nullptr);
}

TEST(DispatchTest, ChoosesTheBestTable) {
  if (std::getenv("DSTUNE_CPU_KERNELS") != nullptr) GTEST_SKIP() << "chosen by the environment";
  std::string best = "portable";
  for (const std::string& name : table_names())
    if (cpu_table(name.c_str()) != nullptr) best = name;
  EXPECT_EQ(cpu_table().name, best);
}

TEST(DispatchTest, RefusesAnUnknownTable) {
  // In a process of its own, started afresh, since the choice is made once.
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("DSTUNE_CPU_KERNELS", "abacus", 1);
        try {
          cpu_table();
        } catch (const std::invalid_argument&) {
          std::exit(3);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(3), "");
}

TEST(DispatchTest, KeepsAtLeastOneThread) {
  set_cpu_threads(0);
  EXPECT_EQ(cpu_threads(), 1);
  set_cpu_threads(3);
  EXPECT_EQ(cpu_threads(), 3);
  set_cpu_threads(1);
}

TEST(CounterHashTest, IsSplitmix64ForSeedAndStreamZero) {
  // The first numbers of the published generator with state 0.
  EXPECT_EQ(counter_hash(0, 0, 0), 0xE220A8397B1DCDAFU);
  EXPECT_EQ(counter_hash(0, 0, 1), 0x6E789E6AA1B965F4U);
  EXPECT_EQ(counter_hash(0, 0, 2), 0x06C45D188009454FU);
}

TEST(CounterHashTest, SeparatesSeedsStreamsAndIndices) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    for (std::uint64_t stream = 0; stream < 16; ++stream) {
      for (std::uint64_t index = 0; index < 16; ++index)
        EXPECT_TRUE(seen.insert(counter_hash(seed, stream, index)).second);
    }
  }
}

}  // namespace
}  // namespace dstune::kernels::test
