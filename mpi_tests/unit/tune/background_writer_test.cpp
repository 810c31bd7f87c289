#include <vector>

#include <gtest/gtest.h>

#include "control/publisher.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

TEST(BackgroundWriterTest, WritesEverythingInOrder) {
  std::vector<int> written;
  BackgroundWriter writer;

  for (int i = 0; i < 1000; ++i) writer.add([&written, i] { written.push_back(i); });
  writer.drain();

  ASSERT_EQ(written.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(written[static_cast<std::size_t>(i)], i);
}

TEST(BackgroundWriterTest, FinishesOnDestruction) {
  int written = 0;
  {
    BackgroundWriter writer;
    for (int i = 0; i < 100; ++i) writer.add([&written] { ++written; });
  }

  EXPECT_EQ(written, 100);
}

TEST(BackgroundWriterTest, AFailureIsThrownToWhoeverAddsOrWaits) {
  int written = 0;
  BackgroundWriter writer;

  writer.add([] { throw IoError("the disk is full"); });

  EXPECT_THROW(writer.drain(), IoError);
  EXPECT_THROW(writer.add([&written] { ++written; }), IoError);
  EXPECT_THROW(writer.drain(), IoError);
  EXPECT_EQ(written, 0);
}

}  // namespace
}  // namespace dstune
