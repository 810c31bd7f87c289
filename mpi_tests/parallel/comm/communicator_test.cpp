#include "dstune/comm/communicator.hpp"

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/comm/nodes.hpp"

namespace dstune {
namespace {

void complete(Request request) {
  Waiter().until([&] { return request.test(); }, "a request");
}

TEST(CommunicatorTest, BroadcastsAnySize) {
  const Communicator world = Communicator::world();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{70001}}) {
    const int root = world.size() - 1;
    Bytes data;
    if (world.rank() == root) data.assign(size, std::byte{42});
    world.broadcast(data, root);
    EXPECT_EQ(data, Bytes(size, std::byte{42}));
  }
}

TEST(CommunicatorTest, GathersPartsOfDifferentSizes) {
  const Communicator world = Communicator::world();
  const Bytes mine(static_cast<std::size_t>(world.rank() * 1000), std::byte(world.rank()));
  const std::vector<Bytes> all = world.all_gather(mine);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)],
              Bytes(static_cast<std::size_t>(rank * 1000), std::byte(rank)));
  }
}

TEST(CommunicatorTest, ErrorsAreThrown) {
  const Communicator world = Communicator::world();
  const char byte = 0;
  EXPECT_THROW(static_cast<void>(world.start_send(&byte, 1, world.size(), 0)), MpiError);
}

TEST(CommunicatorTest, PolledSendAndReceiveCarryLargeMessages) {
  const Communicator copy = Communicator::world().duplicate();
  const int next = (copy.rank() + 1) % copy.size();
  const int previous = (copy.rank() + copy.size() - 1) % copy.size();
  std::vector<int> out(1 << 20, copy.rank());
  std::vector<int> in(out.size());
  const std::size_t bytes = out.size() * sizeof(int);
  Request receive = copy.start_receive(in.data(), bytes, previous, 3);
  complete(copy.start_send(out.data(), bytes, next, 3));
  complete(std::move(receive));
  EXPECT_EQ(in, std::vector<int>(in.size(), previous));
}

TEST(CommunicatorTest, APolledAllGatherPlacesEveryPart) {
  const Communicator world = Communicator::world();
  const int size = world.size();
  std::vector<int> all(static_cast<std::size_t>(size));
  const int mine = 10 * world.rank();
  complete(world.start_all_gather(&mine, all.data(), sizeof(int)));
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], 10 * rank);
}

TEST(CommunicatorTest, GroupsAreMadeByTheirMembersAlone) {
  const Communicator world = Communicator::world();
  std::vector<int> mine;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) mine.push_back(rank);
  const Communicator group = world.create_group(mine, world.rank() % 2);
  EXPECT_EQ(group.size(), static_cast<int>(mine.size()));
  EXPECT_EQ(mine[static_cast<std::size_t>(group.rank())], world.rank());
}

TEST(CommunicatorTest, ReceivesByTag) {
  const Communicator copy = Communicator::world().duplicate();
  const auto text_of = [](int source, int tag) {
    return "from " + std::to_string(source) + " with tag " + std::to_string(tag);
  };
  const std::vector<std::string> texts{text_of(copy.rank(), 1), text_of(copy.rank(), 2)};
  std::vector<Request> sends;
  for (int tag = 1; tag <= 2; ++tag) {
    const std::string& text = texts[static_cast<std::size_t>(tag - 1)];
    for (int to = 0; to < copy.size(); ++to)
      sends.push_back(copy.start_send(text.data(), text.size(), to, tag));
  }
  for (const int tag : {2, 1}) {
    std::vector<int> seen(static_cast<std::size_t>(copy.size()), 0);
    for (int count = 0; count < copy.size(); ++count) {
      std::optional<Communicator::Message> message;
      Waiter().until(
          [&] {
            message = copy.try_receive(tag);
            return message.has_value();
          },
          "a message");
      const auto* letters = reinterpret_cast<const char*>(message->data.data());
      EXPECT_EQ(std::string(letters, message->data.size()), text_of(message->source, tag));
      ++seen[static_cast<std::size_t>(message->source)];
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }
  for (Request& send : sends) complete(std::move(send));
  EXPECT_FALSE(copy.try_receive(1).has_value());
}

TEST(MpiEnvironmentTest, KnowsTheLibraryAndItsThreads) {
  EXPECT_FALSE(MpiEnvironment::library_version().empty());
  EXPECT_EQ(MpiEnvironment::library_version().find('\n'), std::string::npos);
  EXPECT_TRUE(MpiEnvironment::threads_allowed());
}

TEST(SharedWindowTest, EveryoneSeesEverySegment) {
  const Communicator node = Communicator::world().split_shared();
  const SharedWindow window(node, 10000);
  for (int rank = 0; rank < node.size(); ++rank) {
    EXPECT_EQ(window.segment(rank).size(), 10000U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(window.segment(rank).data()) % 4096, 0U);
    EXPECT_EQ(window.segment(rank)[9999], std::byte{0});
  }
  node.barrier();
  std::memset(window.segment(node.rank()).data(), node.rank() + 1, 10000);
  node.barrier();
  for (int rank = 0; rank < node.size(); ++rank) {
    EXPECT_EQ(window.segment(rank)[0], std::byte(rank + 1));
    EXPECT_EQ(window.segment(rank)[9999], std::byte(rank + 1));
  }
  node.barrier();
}

TEST(SharedWindowTest, AffordableBytesAreWholePagesWithinWhatIsWanted) {
  EXPECT_LE(SharedWindow::affordable_bytes(1 << 20, 4), 1U << 20);
  const std::size_t huge = SharedWindow::affordable_bytes(std::size_t{1} << 60, 2);
  EXPECT_LT(huge, std::size_t{1} << 60);
  EXPECT_EQ(huge % 4096, 0U);
  EXPECT_LE(SharedWindow::affordable_bytes(std::size_t{1} << 60, 64), huge / 16);
}

}  // namespace
}  // namespace dstune
