#pragma once
/// An MPI communicator with one owner, and requests that are polled, never waited for.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dstune {

/// A non-blocking operation. The buffers must live until test() says true. A request that is
/// destroyed before that is abandoned. Its owner must then leak the memory, since a late peer may
/// still write into it.
class Request {
 public:
  Request() noexcept;
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();
  /// True once it has completed (and from then on). Throws MpiError. Local.
  bool test();

  struct State;
  explicit Request(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

using Bytes = std::vector<std::byte>;

/// Errors return (MpiError), they do not abort. Destruction frees an intact communicator.
class Communicator {
 public:
  /// The world itself, not owned. Local.
  static Communicator world();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// For code that is handed the communicator itself: what MPI_Comm_f2c takes. Local.
  [[nodiscard]] int fortran_handle() const;

  /// Collective over the communicator.
  [[nodiscard]] Communicator duplicate() const;
  /// The ranks of the caller's shared-memory node, in rank order. Collective over the communicator.
  [[nodiscard]] Communicator split_shared() const;
  /// A communicator of these ranks (of this one, ascending). Members only; groups made at the same
  /// time need different tags (0 … 32767). Blocks for ever where a member is dead.
  [[nodiscard]] Communicator create_group(std::span<const int> ranks, int tag) const;
  /// Never frees it: somebody may still be inside. Local.
  void abandon() noexcept;

  /// Start-up only, blocking. Collective over the communicator.
  void broadcast(Bytes& data, int root) const;
  [[nodiscard]] std::vector<Bytes> all_gather(std::span<const std::byte> mine) const;
  void barrier() const;

  /// Polled operations. Members only.
  [[nodiscard]] Request start_send(const void* data, std::size_t bytes, int to, int tag) const;
  [[nodiscard]] Request start_receive(void* data, std::size_t bytes, int from, int tag) const;
  [[nodiscard]] Request start_all_gather(const void* mine, void* all,
                                         std::size_t bytes_per_rank) const;

  struct Message {
    int source;
    Bytes data;
  };
  /// A message with this tag from anybody, if one has arrived. Safe beside other threads that ask
  /// for other tags. Local.
  [[nodiscard]] std::optional<Message> try_receive(int tag) const;

  struct State;

 private:
  explicit Communicator(std::unique_ptr<State> state);
  friend class SharedWindow;
  std::unique_ptr<State> state_;
};

}  // namespace dstune
