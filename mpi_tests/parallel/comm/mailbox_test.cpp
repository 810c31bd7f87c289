#include "dstune/comm/mailbox.hpp"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/base/wait.hpp"

namespace dstune {
namespace {

Bytes number_message(int number, std::size_t bytes) {
  Bytes data(bytes, std::byte(number % 251));
  std::memcpy(data.data(), &number, sizeof number);
  return data;
}

int number_of(const Bytes& data) {
  int number = 0;
  std::memcpy(&number, data.data(), sizeof number);
  return number;
}

Mailbox::Message receive(Mailbox& mailbox) {
  std::optional<Mailbox::Message> message;
  Waiter().until(
      [&] {
        message = mailbox.try_receive();
        return message.has_value();
      },
      "a message");
  return std::move(*message);
}

// Sizes on both sides of MPI's eager limit, so that a small one could overtake a large one.
std::size_t size_of(int number) {
  return number % 7 == 0 ? 300000 : 16;
}

TEST(MpiMailboxTest, KeepsTheOrderOfEachPair) {
  const Communicator copy = Communicator::world().duplicate();
  MpiMailbox controller(copy, copy, MpiMailbox::Side::controller);
  MpiMailbox worker(copy, copy, MpiMailbox::Side::worker);
  constexpr int messages = 200;
  for (int number = 0; number < messages; ++number)
    worker.send(0, number_message(number, size_of(number)));
  if (copy.rank() == 0) {
    std::vector<int> next(static_cast<std::size_t>(copy.size()), 0);
    for (int count = 0; count < messages * copy.size(); ++count) {
      const Mailbox::Message message = receive(controller);
      const int expected = next[static_cast<std::size_t>(message.source)]++;
      ASSERT_EQ(message.data, number_message(expected, size_of(expected)));
    }
    for (int rank = 0; rank < copy.size(); ++rank) controller.send(rank, number_message(7, 8));
  }
  EXPECT_EQ(number_of(receive(worker).data), 7);
  EXPECT_TRUE(worker.flush(10));
  EXPECT_TRUE(controller.flush(10));
  copy.barrier();
}

TEST(MpiMailboxTest, ControllerAndWorkerShareARankOnThreadsOfTheirOwn) {
  const Communicator copy = Communicator::world().duplicate();
  constexpr int rounds = 500;
  std::thread controller_thread;
  std::atomic<int> answered{0};
  if (copy.rank() == 0) {
    controller_thread = std::thread([&] {
      MpiMailbox controller(copy, copy, MpiMailbox::Side::controller);
      for (int count = 0; count < rounds * copy.size(); ++count) {
        Mailbox::Message message = receive(controller);
        controller.send(message.source, std::move(message.data));
        ++answered;
      }
      EXPECT_TRUE(controller.flush(10));
    });
  }
  MpiMailbox worker(copy, copy, MpiMailbox::Side::worker);
  for (int round = 0; round < rounds; ++round) {
    worker.send(0, number_message(round, 64));
    EXPECT_EQ(number_of(receive(worker).data), round);
  }
  EXPECT_TRUE(worker.flush(10));
  if (controller_thread.joinable()) {
    controller_thread.join();
    EXPECT_EQ(answered, rounds * copy.size());
  }
  copy.barrier();
}

TEST(MpiMailboxTest, FlushGivesUpAfterItsTime) {
  const Communicator copy = Communicator::world().duplicate();
  if (copy.size() == 1) GTEST_SKIP() << "needs a second rank";
  MpiMailbox worker(copy, copy, MpiMailbox::Side::worker);
  if (copy.rank() == 1) {
    // Too large to leave before the other side asks for it.
    worker.send(0, Bytes(8 << 20));
    EXPECT_FALSE(worker.flush(0.05));
  }
  copy.barrier();
  if (copy.rank() == 0) {
    MpiMailbox controller(copy, copy, MpiMailbox::Side::controller);
    EXPECT_EQ(receive(controller).data.size(), std::size_t{8} << 20);
  }
  if (copy.rank() == 1) {
    EXPECT_TRUE(worker.flush(30));
  }
  copy.barrier();
}

}  // namespace
}  // namespace dstune
