#pragma once
/// Messages between the controller and the workers: bytes, in order for each pair, never blocking.
/// An interface, so that the controller is tested without MPI.

#include <deque>
#include <optional>

#include "dstune/comm/communicator.hpp"

namespace dstune {

class Mailbox {
 public:
  using Message = Communicator::Message;  ///< from a world rank
  Mailbox() = default;
  virtual ~Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  /// Local; the bytes are copied, delivery goes on in try_receive() and flush().
  virtual void send(int world_rank, Bytes data) = 0;
  virtual std::optional<Message> try_receive() = 0;
  /// Completes what was sent or gives up after the time. True where all was delivered to MPI.
  virtual bool flush(double timeout_s) = 0;
};

/// Over two communicators of the whole world, one for each direction. Rank 0's controller and its
/// own worker receive at the same time. On one communicator the busier of two threads would keep
/// the other from its messages for seconds.
class MpiMailbox : public Mailbox {
 public:
  enum class Side { controller, worker };
  /// The communicators outlive it. Local.
  MpiMailbox(const Communicator& to_workers, const Communicator& to_controller, Side side);
  ~MpiMailbox() override;
  void send(int world_rank, Bytes data) override;
  std::optional<Message> try_receive() override;
  bool flush(double timeout_s) override;

 private:
  struct Outgoing {
    std::unique_ptr<Bytes> data;
    Request request;
  };
  void reap();

  const Communicator& outgoing_communicator_;
  const Communicator& incoming_communicator_;
  int send_tag_;
  int receive_tag_;
  std::deque<Outgoing> outgoing_;
};

}  // namespace dstune
