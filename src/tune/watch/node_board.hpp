#pragma once
/// The ranks of a node know of each other without MPI by a node board in shared memory. Each has a
/// line of its own on it that no other writes. Local; every function but attach() by any thread.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dstune/base/process.hpp"
#include "watch/launch.hpp"

namespace dstune {

class NodeBoard {
 public:
  /// One rank's line.
  struct alignas(64) Line {
    std::atomic<std::uint32_t> is_filled;  ///< what follows is there, and stays
    std::int32_t world_rank;
    std::int32_t process_number;
    std::uint64_t process_started_at;
    std::uint64_t process_numbering;   ///< what the number means something in
    std::atomic<std::uint64_t> beats;  ///< grows while its process runs
    std::atomic<std::int32_t> end;     ///< 1 + the exit code with which it is about to leave

    [[nodiscard]] ProcessId process() const { return {process_number, process_started_at}; }
    [[nodiscard]] std::optional<int> exit_code() const {
      const int noted = end.load(std::memory_order_acquire);
      return noted > 0 ? std::optional(noted - 1) : std::nullopt;
    }
  };
  static constexpr std::size_t max_lines = 1024;

  /// Makes the node board of the job on this node, or finds it, and takes a line. Null where the
  /// launch has no key, or the system no shared memory. The node board's file is gone once all
  /// ranks have come. `folder`: of a file system in memory.
  static std::unique_ptr<NodeBoard> attach(const Launch& launch,
                                           const std::string& folder = "/dev/shm");
  /// Removes the boards of this user whose ranks have all ended before the last one came.
  static void remove_stale(const std::string& folder = "/dev/shm");

  ~NodeBoard();
  NodeBoard(const NodeBoard&) = delete;
  NodeBoard& operator=(const NodeBoard&) = delete;

  [[nodiscard]] Line& own() const;
  /// Those that were taken, in the order of their coming; the newest may not be filled yet.
  [[nodiscard]] std::span<Line> lines() const;
  /// Tells whether the end of the line's process can be seen from here.
  [[nodiscard]] bool sees_process(const Line& line) const;
  /// Nobody else comes: its file goes.
  void close() const noexcept;

  /// Keeps the path to which the job's exit status is to be written. Rank 0 alone; once. A name
  /// that is too long is not kept.
  void set_exit_status_path(const std::string& path);
  /// Empty before that.
  [[nodiscard]] std::string exit_status_path() const;

 private:
  struct Memory;
  NodeBoard(Memory* memory, std::string path);

  Memory* memory_;
  std::string path_;
  std::size_t own_line_ = 0;
};

}  // namespace dstune
