// Ranks on which finalists stay built and take turns: what they compute is what they compute alone.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/tune/worker.hpp"

namespace dstune {
namespace {

using testing::Each;
using testing::SizeIs;

ModelSpec tiny_model() {
  ModelSpec model;
  model.hidden_size = 32;
  model.num_layers = 2;
  model.num_heads = model.num_kv_heads = 2;
  model.head_size = 16;
  model.intermediate_size = 128;
  model.vocab_size = 101;
  model.max_positions = 16;
  return model;
}

TrainingConfig config_of(int zero_stage, int micro_batch) {
  TrainingConfig config;
  config.zero_stage = zero_stage;
  config.micro_batch = micro_batch;
  config.sequence_length = 16;
  return config;
}

/// The words of the leader, or of members that left, at the end of an attempt.
struct End {
  std::optional<message::Outcome> outcome{};
  std::vector<message::Gone> gone{};
};

/// All ranks with rank 0's other half on a thread of its own.
class TurnsTest : public testing::Test {
 protected:
  TurnsTest()
      : world_(Communicator::world().duplicate()),
        node_(world_.split_shared()),
        to_workers_(world_.duplicate()),
        to_controller_(world_.duplicate()),
        topology_(find_topology(world_, node_)),
        groups_(world_, node_, topology_, {}, {}) {}

  /// Sends these orders one after the other. Collective over the world.
  void run(const std::vector<Message>& orders, std::int64_t device_bytes = 1 << 28) {
    CpuDevice device(device_bytes, 1);
    MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::worker);
    const Instruments instruments = make_instruments({WorkloadSpec{}});
    {
      Worker worker({.model = &model_,
                     .instruments = &instruments,
                     .measure = {1, 6, 0.0},
                     .topology = &topology_,
                     .groups = &groups_,
                     .device = &device,
                     .mailbox = &mailbox});
      std::thread controller;
      if (world_.rank() == 0) controller = std::thread([&] { control(orders); });
      worker.run();
      if (controller.joinable()) controller.join();
    }
    EXPECT_LE(device.budget().held_bytes(), device_bytes);
  }

  message::Assign assign(const std::string& name, const TrainingConfig& config) {
    message::Assign assign;
    assign.attempt = ++attempt_;
    assign.experiment = name;
    assign.config = config;
    assign.world_ranks.resize(static_cast<std::size_t>(topology_.world_size));
    std::iota(assign.world_ranks.begin(), assign.world_ranks.end(), 0);
    assign.timeout_s = 50;
    return assign;
  }
  message::Assign in_turns(const message::Finalist& first,
                           const std::vector<message::Finalist>& others) {
    message::Assign turns = assign(first.experiment, first.config);
    turns.turn_steps = first.turn_steps;
    turns.others = others;
    turns.stays_built = true;
    return turns;
  }

  [[nodiscard]] bool is_first() const { return world_.rank() == 0; }
  std::vector<End> ends_;  ///< on rank 0

 private:
  void control(const std::vector<Message>& orders) {
    MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::controller);
    const auto send = [&](const std::vector<int>& ranks, const Message& message) {
      for (const int rank : ranks) mailbox.send(rank, encode(message));
    };
    std::vector<int> all(static_cast<std::size_t>(topology_.world_size));
    std::iota(all.begin(), all.end(), 0);
    for (const Message& order : orders) {
      send(all, order);
      const auto* const assign = std::get_if<message::Assign>(&order);
      if (assign == nullptr) continue;
      End& end = ends_.emplace_back();
      std::size_t ready = 0;
      while (!end.outcome && end.gone.size() < all.size()) {
        const auto received = mailbox.try_receive();
        if (!received) {
          std::this_thread::yield();
          continue;
        }
        const Message message = decode(received->data);
        if (std::holds_alternative<message::Ready>(message) && ++ready == all.size())
          send(all, message::Go{assign->attempt});
        if (const auto* outcome = std::get_if<message::Outcome>(&message)) end.outcome = *outcome;
        if (const auto* gone = std::get_if<message::Gone>(&message)) {
          if (end.gone.empty()) send(all, message::Abort{assign->attempt});
          end.gone.push_back(*gone);
        }
      }
    }
    send(all, message::Quit{});
    mailbox.flush(5);
  }

  Communicator world_, node_, to_workers_, to_controller_;
  Topology topology_;
  GroupTable groups_;
  ModelSpec model_ = tiny_model();
  std::uint64_t attempt_ = 0;
};

void append(std::vector<double>& losses, const Measurement& measurement) {
  EXPECT_EQ(measurement.status, Status::ok) << measurement.reason;
  losses.insert(losses.end(), measurement.losses.begin(), measurement.losses.end());
}

TEST_F(TurnsTest, TheyComputeWhatTheyComputeAlone) {
  const message::Finalist a{"a", config_of(2, 2), 2}, b{"b", config_of(3, 1), 3},
      c{"c", config_of(0, 1), 1};
  message::Assign long_a = assign("long a", a.config), long_b = assign("long b", b.config);
  for (message::Assign* const alone : {&long_a, &long_b})
    alone->tiny = message::Tiny{tiny_model(), {1, 40, 0.0}};
  run({long_a, long_b, in_turns(a, {b, c}), in_turns(c, {b, a}), in_turns(b, {})});
  if (!is_first()) return;
  ASSERT_THAT(ends_, SizeIs(5));
  std::vector<double> alone_a, alone_b, turns_a, turns_b;
  for (const End& end : ends_) ASSERT_TRUE(end.outcome);
  append(alone_a, ends_[0].outcome->measurement);
  append(alone_b, ends_[1].outcome->measurement);
  append(turns_a, ends_[2].outcome->measurement);
  ASSERT_THAT(ends_[2].outcome->others, SizeIs(2));
  append(turns_b, ends_[2].outcome->others[0]);
  ASSERT_THAT(ends_[3].outcome->others, SizeIs(2));
  append(turns_b, ends_[3].outcome->others[0]);
  append(turns_a, ends_[3].outcome->others[1]);
  append(turns_b, ends_[4].outcome->measurement);
  // All runs together are as one.
  ASSERT_GE(alone_a.size(), turns_a.size());
  ASSERT_GE(alone_b.size(), turns_b.size());
  alone_a.resize(turns_a.size());
  alone_b.resize(turns_b.size());
  EXPECT_EQ(turns_a, alone_a);
  EXPECT_EQ(turns_b, alone_b);
  EXPECT_NE(turns_a.front(), turns_a.back());
}

TEST_F(TurnsTest, TheyAreBuiltOnceUntilTheyAreReleased) {
  const message::Finalist a{"a", config_of(1, 2), 2}, b{"b", config_of(1, 1), 2};
  run({in_turns(a, {b}), in_turns(b, {a}), Message(message::Release{"a"}), in_turns(a, {b})});
  if (!is_first()) return;
  const auto is_built = [](const Measurement& measurement) {
    return measurement.overhead_s.contains("build");
  };
  ASSERT_THAT(ends_, SizeIs(3));
  for (const End& end : ends_) ASSERT_TRUE(end.outcome && end.outcome->others.size() == 1);
  EXPECT_TRUE(is_built(ends_[0].outcome->measurement));
  EXPECT_TRUE(is_built(ends_[0].outcome->others[0]));
  EXPECT_FALSE(is_built(ends_[1].outcome->measurement));
  EXPECT_FALSE(is_built(ends_[1].outcome->others[0]));
  EXPECT_EQ(ends_[1].outcome->measurement.warmup_steps, 1) << "others used the caches in between";
  EXPECT_TRUE(is_built(ends_[2].outcome->measurement)) << "it was released";
  EXPECT_FALSE(is_built(ends_[2].outcome->others[0]));
  for (const End& end : ends_) {
    const std::vector<message::Span>& spans = end.outcome->spans;
    ASSERT_THAT(spans, SizeIs(2));
    EXPECT_LT(spans[0].began_s, spans[0].ended_s);
    EXPECT_LT(spans[0].began_s, spans[1].began_s) << "in the order that was asked for";
    EXPECT_LT(spans[1].began_s, spans[0].ended_s) << "in turns, and not one after the other";
  }
}

TEST_F(TurnsTest, WithoutMemoryForTheSecondTheFirstGoesOn) {
  const message::Finalist a{"a", config_of(0, 1), 2}, b{"b", config_of(0, 512), 2};
  run({in_turns(a, {b}), in_turns(a, {}), assign("b", config_of(0, 1))}, 4 << 20);
  if (!is_first()) return;
  ASSERT_THAT(ends_, SizeIs(3));
  ASSERT_TRUE(ends_[0].outcome && ends_[0].outcome->others.size() == 1);
  EXPECT_EQ(ends_[0].outcome->measurement.status, Status::ok)
      << ends_[0].outcome->measurement.reason;
  EXPECT_EQ(ends_[0].outcome->others[0].status, Status::out_of_memory);
  ASSERT_TRUE(ends_[1].outcome);
  EXPECT_FALSE(ends_[1].outcome->measurement.overhead_s.contains("build"));
  ASSERT_TRUE(ends_[2].outcome);
  EXPECT_EQ(ends_[2].outcome->measurement.status, Status::ok);
}

}  // namespace
}  // namespace dstune
