// A worker beside which a second thread listens.
#include "dstune/tune/worker.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/comm/nodes.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;

/// The other half of one experiment: GO once the worker is ready, QUIT after its end. A second
/// thread is slow in it, so that the first one comes meanwhile unless something holds it back.
class SlowMailbox : public Mailbox {
 public:
  explicit SlowMailbox(const message::Assign& assign) { messages_.push_back(encode(assign)); }

  [[nodiscard]] bool was_shared() const { return was_shared_; }
  [[nodiscard]] bool was_listened_to() const { return was_listened_to_; }
  [[nodiscard]] const std::optional<Measurement>& outcome() const { return outcome_; }

  void send(int /*world_rank*/, Bytes data) override {
    const Visit visit(*this);
    const dstune::Message message = decode(data);
    const std::lock_guard lock(mutex_);
    if (const auto* ready = std::get_if<message::Ready>(&message))
      messages_.push_back(encode(message::Go{ready->attempt}));
    if (const auto* outcome = std::get_if<message::Outcome>(&message))
      outcome_ = outcome->measurement;
    const auto* const gone = std::get_if<message::Gone>(&message);
    if (gone != nullptr) ADD_FAILURE() << gone->reason;
    if (outcome_ || gone != nullptr) messages_.push_back(encode(message::Quit{}));
  }
  std::optional<Mailbox::Message> try_receive() override {
    const Visit visit(*this);
    if (std::this_thread::get_id() != worker_) {
      was_listened_to_ = true;
      std::this_thread::sleep_for(300ms);
    }
    const std::lock_guard lock(mutex_);
    if (messages_.empty()) return std::nullopt;
    Mailbox::Message message{0, std::move(messages_.front())};
    messages_.pop_front();
    return message;
  }
  bool flush(double) override { return true; }

 private:
  /// A call, during which there is no other one.
  class Visit {
   public:
    explicit Visit(SlowMailbox& mailbox) : mailbox_(mailbox) {
      if (++mailbox_.visitors_ > 1) mailbox_.was_shared_ = true;
    }
    ~Visit() { --mailbox_.visitors_; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    SlowMailbox& mailbox_;
  };

  std::thread::id worker_ = std::this_thread::get_id();
  std::atomic<int> visitors_ = 0;
  std::atomic<bool> was_shared_ = false;
  std::atomic<bool> was_listened_to_ = false;
  std::mutex mutex_;
  std::deque<Bytes> messages_;
  std::optional<Measurement> outcome_;
};

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    assign_.config.sequence_length = 16;
    assign_.world_ranks = {world_.rank()};
    assign_.timeout_s = 50;
  }
  /// Until it is told to end.
  void run(const WorkloadSpec& workload, Device& device, Mailbox& mailbox) {
    const Instruments instruments = make_instruments({workload});
    Worker worker({.model = &model_,
                   .instruments = &instruments,
                   .measure = {1, 1, 0.0},
                   .topology = &topology_,
                   .groups = &groups_,
                   .device = &device,
                   .mailbox = &mailbox,
                   .exits_when_stuck = true});
    worker.run();
  }

  message::Assign assign_;  ///< this rank alone

 private:
  Communicator world_ = Communicator::world().duplicate();
  Communicator node_ = world_.split_shared();
  Topology topology_ = find_topology(world_, node_);
  GroupTable groups_{world_, node_, topology_, {}, {}};
  ModelSpec model_ = preset("gpt2");
};

TEST_F(WorkerTest, OneThreadAtATimeUsesTheMailbox) {
  CpuDevice device(1 << 20, 1);
  // Each of its steps is long enough for news of the progress.
  WorkloadSpec workload;
  workload.kind = WorkloadKind::synthetic;
  workload.step_time_s = 0.15;
  assign_.attempt = 1;
  SlowMailbox mailbox(assign_);
  run(workload, device, mailbox);
  ASSERT_TRUE(mailbox.outcome().has_value());
  EXPECT_EQ(mailbox.outcome()->status, Status::ok);
  EXPECT_TRUE(mailbox.was_listened_to());
  EXPECT_FALSE(mailbox.was_shared());
}

/// One that hangs as soon as something fails.
class SilentDevice : public CpuDevice {
 public:
  SilentDevice() : CpuDevice(1 << 20, 1) {}
  DeviceState drain(std::chrono::duration<double> limit) override {
    limits_s.push_back(limit.count());
    return DeviceState::silent;
  }
  std::vector<double> limits_s;
};

/// Two experiments, the second once the first is left.
class TwoOrders : public Mailbox {
 public:
  explicit TwoOrders(message::Assign assign) : assign_(std::move(assign)) { order(); }

  void send(int /*world_rank*/, Bytes data) override {
    const dstune::Message message = decode(data);
    const auto* const left = std::get_if<message::Gone>(&message);
    ASSERT_NE(left, nullptr);
    gone.push_back(*left);
    if (gone.size() == 1) return order();
    messages_.push_back(encode(message::Quit{}));
  }
  std::optional<Mailbox::Message> try_receive() override {
    if (messages_.empty()) return std::nullopt;
    Mailbox::Message message{0, std::move(messages_.front())};
    messages_.pop_front();
    return message;
  }
  bool flush(double) override { return true; }

  std::vector<message::Gone> gone;

 private:
  void order() {
    ++assign_.attempt;
    messages_.push_back(encode(assign_));
  }

  message::Assign assign_;
  std::deque<Bytes> messages_;
};

// It waits for its device as long as it was told to, says so, and asks for nothing on it again.
TEST_F(WorkerTest, ARankWhoseDeviceIsSilentTakesNoExperimentAnyMore) {
  SilentDevice device;
  WorkloadSpec workload;
  workload.kind = WorkloadKind::plugin;  // of no library: can not be made
  assign_.drain_timeout_s = 12.5;
  TwoOrders mailbox(assign_);
  run(workload, device, mailbox);
  ASSERT_EQ(mailbox.gone.size(), 2U);
  for (const message::Gone& gone : mailbox.gone) {
    EXPECT_TRUE(gone.is_cause);
    EXPECT_EQ(gone.loss, message::Loss::device_answer);
  }
  EXPECT_EQ(mailbox.gone[0].reason.find("has no device any more"), std::string::npos);
  EXPECT_NE(mailbox.gone[1].reason.find("has no device any more"), std::string::npos);
  EXPECT_EQ(device.limits_s.front(), 12.5);
}

}  // namespace
}  // namespace dstune
