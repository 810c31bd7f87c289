#include "dstune/tune/protocol.hpp"

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "watch/injection.hpp"

namespace dstune {
namespace {

TEST(ProtocolTest, RefusesWhatIsNoMessage) {
  EXPECT_THROW(decode({}), InputError);
  EXPECT_THROW(decode({std::byte{0xff}, std::byte{0x00}}), InputError);
  Bytes cut = encode(Message(message::Go{1}));
  cut.pop_back();
  EXPECT_THROW(decode(cut), InputError);
}

TEST(InjectionTest, FindsTheFaultOfARankAndExperiment) {
  const auto find = [](int rank, const char* name) { return find_injection(rank, name); };
  setenv("DSTUNE_INJECT", "oom@1:z0_gas1_tmbspg1,die.timing@2:z1_gas1_tmbspg1,lose_device@3:*", 1);

  EXPECT_EQ(find(1, "z0_gas1_tmbspg1").fault, Fault::oom);
  EXPECT_EQ(find(1, "z0_gas1_tmbspg1").moment, FaultMoment::ready);
  EXPECT_EQ(find(2, "z1_gas1_tmbspg1").fault, Fault::die);
  EXPECT_EQ(find(2, "z1_gas1_tmbspg1").moment, FaultMoment::timing);
  EXPECT_EQ(find(2, "z0_gas1_tmbspg1").fault, Fault::none);
  EXPECT_EQ(find(1, "z0_gas1_tmbspg16").fault, Fault::none);
  EXPECT_EQ(find(3, "z0_gas1_tmbspg16").fault, Fault::loses_device);
  EXPECT_EQ(find(3, "z0_gas1_tmbspg16").moment, FaultMoment::warm_up);

  for (const char* const malformed : {"die", "dye@1:a", "die.late@1:a"}) {
    setenv("DSTUNE_INJECT", malformed, 1);
    EXPECT_THROW(find(1, "a"), Error) << malformed;
  }
  unsetenv("DSTUNE_INJECT");
  EXPECT_EQ(find(1, "z0_gas1_tmbspg1").fault, Fault::none);
}

}  // namespace
}  // namespace dstune
