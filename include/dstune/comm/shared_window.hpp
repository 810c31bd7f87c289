#pragma once
/// Memory that all ranks of a node see, one segment a rank. Everyone writes its own segment only,
/// so a late or dead peer can not damage anybody else's data.

#include <cstddef>
#include <memory>
#include <span>

#include "dstune/comm/communicator.hpp"

namespace dstune {

class SharedWindow {
 public:
  /// Collective over the node's communicator, which outlives it. Segments are zeroed and start at
  /// multiples of 4096 bytes.
  SharedWindow(const Communicator& node, std::size_t bytes_per_rank);
  /// Collective over the node unless abandoned.
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  [[nodiscard]] std::span<std::byte> segment(int local_rank) const;
  [[nodiscard]] int size() const;
  /// After a loss: never freed. Local.
  void abandon() noexcept;

  /// Bytes a rank that fit the node's shared-memory file system with room to spare, at most
  /// `wanted`.
  static std::size_t affordable_bytes(std::size_t wanted, int ranks_on_node);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dstune
