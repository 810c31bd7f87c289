// Commands and replies between the program and Python, which a thread plays.
#include "dstune/instrument/engine/channel.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "served_channel.hpp"

namespace dstune::engine {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const json::Value step = {{"command", "step"}, {"number", 3}};

Waiter ended_by(const std::atomic<bool>& aborted) {
  return {Waiter::Clock::time_point::max(), [&] { return aborted.load(); }, true};
}

TEST(ChannelTest, ACommandIsAnsweredByPythonsReply) {
  ServedChannel python([](const json::Value& command) {
    return json::Value({{"ok", true}, {"twice", 2 * command.at("number").get<int>()}}).dump();
  });
  EXPECT_EQ(python.channel.call(step, Waiter(), 1s).at("twice"), 6);
  EXPECT_EQ(python.channel.call(step, Waiter(), 1s).at("twice"), 6);
}

TEST(ChannelTest, WhatPythonSaysOfAFailureIsThrown) {
  ServedChannel python([](const json::Value&) {
    return R"({"ok": false, "error": {"kind": "out_of_memory", "message": "no memory",
               "traceback": "line 3\nMemoryError", "output": "epoch 1"}})";
  });
  try {
    python.channel.call(step, Waiter(), 1s);
    FAIL();
  } catch (const PythonError& error) {
    EXPECT_EQ(error.kind, ErrorKind::out_of_memory);
    EXPECT_STREQ(error.what(), "no memory");
    EXPECT_EQ(error.traceback, "line 3\nMemoryError");
    EXPECT_EQ(error.output, "epoch 1");
  }
}

TEST(ChannelTest, AReplyThatSaysNothingIsAFailureWithoutWords) {
  ServedChannel python([](const json::Value&) { return "{}"; });
  EXPECT_THROW(python.channel.call(step, Waiter(), 1s), PythonError);
}

TEST(ChannelTest, AReplyThatIsNoJsonIsRefused) {
  ServedChannel python([](const json::Value&) { return "Traceback"; });
  EXPECT_THROW(python.channel.call(step, Waiter(), 1s), InputError);
}

/// A call that is aborted once Python is inside, and answered when Python is interrupted.
class InterruptedCall {
 public:
  /// `inside`: what Python does before.
  void call(std::function<void()> inside) {
    inside_ = std::move(inside);
    std::thread daemon([&] {
      if (channel.wait_interrupt() == 1) interrupted_.set_value();
    });
    EXPECT_THROW(channel.call(step, ended_by(aborted_), 60s), CollectiveError);
    daemon.join();
  }

 private:
  std::function<void()> inside_;
  std::atomic<bool> aborted_ = false;
  std::promise<void> interrupted_;
  ServedChannel python_{[this](const json::Value&) {
    inside_();
    aborted_ = true;
    interrupted_.get_future().wait();
    return R"({"ok": false, "error": {"kind": "interrupted", "message": "interrupted"}})";
  }};

 public:
  Channel& channel = python_.channel;
};

TEST(ChannelTest, AnAbortInterruptsPythonAndWaitsForItsReply) {
  InterruptedCall python;
  python.call([] {});
  EXPECT_FALSE(python.channel.is_stuck());
  EXPECT_EQ(python.channel.take_error().at("kind"), "interrupted");
  EXPECT_TRUE(python.channel.take_error().is_null());
}

TEST(ChannelTest, ASocketThatPythonWaitsOnIsShutDown) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::atomic<bool> aborted = false;
  ServedChannel python([&](const json::Value&) {
    python.channel.note_sockets(std::span(ends).first(1));
    aborted = true;
    char nothing = 0;
    EXPECT_EQ(read(ends[0], &nothing, 1), 0);  // the end, and no peer has written
    return R"({"ok": false, "error": {"kind": "exception", "message": "connection closed"}})";
  });
  EXPECT_THROW(python.channel.call(step, ended_by(aborted), 60s), CollectiveError);
  EXPECT_FALSE(python.channel.is_stuck());
  for (const int end : ends) close(end);
}

TEST(ChannelTest, ANumberThatIsAnotherSocketsByNowIsLeftAlone) {
  std::array<int, 2> ends{};
  std::array<int, 2> others{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, others.data()), 0);
  InterruptedCall python;
  python.call([&] {
    python.channel.note_sockets(std::span(ends).first(1));
    EXPECT_EQ(dup2(others[0], ends[0]), ends[0]);
  });
  EXPECT_EQ(send(others[0], "x", 1, MSG_NOSIGNAL), 1);
  for (const auto& pair : {ends, others})
    for (const int end : pair) close(end);
}

TEST(ChannelTest, PythonThatDoesNotComeBackIsStuckForGood) {
  std::promise<void> late;
  {
    ServedChannel python([&](const json::Value&) {
      late.get_future().wait();
      return R"({"ok": true})";
    });
    const Waiter over = Waiter().with_deadline(Waiter::Clock::now() + 20ms);
    try {
      python.channel.call(step, over, 50ms);
      FAIL();
    } catch (const PythonStuck& error) {
      EXPECT_EQ(error.why(), CollectiveError::Cause::deadline);
      EXPECT_THAT(error.what(), HasSubstr("\"step\""));
    }
    EXPECT_TRUE(python.channel.is_stuck());
    EXPECT_THROW(python.channel.call(step, Waiter(), 50ms), PythonStuck);
    late.set_value();
  }
}

TEST(ChannelTest, AnInterruptOfAnEarlierCommandIsNotTheNextOnes) {
  std::atomic<bool> aborted = false;
  std::atomic<bool> returns = false;
  ServedChannel python([&](const json::Value&) {
    aborted = true;
    while (!returns) std::this_thread::sleep_for(1ms);
    return R"({"ok": true})";
  });
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    returns = true;
  });
  EXPECT_THROW(python.channel.call(step, ended_by(aborted), 60s), CollectiveError);
  later.join();
  auto heard = std::async(std::launch::async, [&] { return python.channel.wait_interrupt(); });
  EXPECT_EQ(heard.wait_for(50ms), std::future_status::timeout);
  python.channel.close(0);
  EXPECT_EQ(heard.get(), 0);
}

TEST(ChannelTest, TheEndIsHeardByPython) {
  Channel channel;
  EXPECT_FALSE(channel.wait_closed(1ms));
  channel.close(75);
  EXPECT_EQ(channel.exchange(nullptr), nullptr);
  EXPECT_EQ(channel.exit_code(), 75);
  EXPECT_TRUE(channel.wait_closed(1ms));
  EXPECT_EQ(channel.wait_interrupt(), 0);
}

TEST(ChannelTest, ProgressIsToldOnce) {
  Channel channel;
  channel.note_progress("importing torch");
  EXPECT_EQ(channel.take_progress(), "importing torch");
  EXPECT_EQ(channel.take_progress(), "");
}

}  // namespace
}  // namespace dstune::engine
