#pragma once
/// A rank's place on a disk for what is offloaded to one: a file without a name, read and written
/// beside the arithmetic by threads. All functions: Local.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "dstune/device/memory.hpp"

namespace dstune {

struct DiskAccess {
  std::int64_t block_bytes = 1 << 20;  ///< a transfer is cut into these; rounded up to 4096
  int threads = 8;                     ///< that read, and as many that write: blocks in flight
};

/// Bytes that an unprivileged process may still write where `folder` is, or its nearest parent that
/// exists. Throws DeviceError.
std::int64_t free_disk_bytes(const std::string& folder);

/// The file never has a name, so it is gone with the process, whatever ends that. Offsets, sizes
/// and addresses are multiples of 4096. One thread asks and waits.
class DiskFile {
 public:
  /// Takes `bytes` of the budget and of the disk of `folder`, or of its nearest parent that exists.
  /// At most `transfers` are asked for before a wait. The budget outlives it. Throws OutOfMemory
  /// where one of them does not have them, else DeviceError.
  DiskFile(const std::string& folder, std::int64_t bytes, std::size_t transfers,
           const DiskAccess& access, MemoryBudget& budget);
  ~DiskFile();

  /// Begins a transfer after those of its direction that were asked for before. The memory is the
  /// transfer's until it is waited for.
  void read(std::byte* to, std::int64_t offset_bytes, std::int64_t bytes);
  void write(const std::byte* from, std::int64_t offset_bytes, std::int64_t bytes);
  /// How many transfers of a direction have been asked for so far.
  [[nodiscard]] std::int64_t num_reads() const;
  [[nodiscard]] std::int64_t num_writes() const;
  /// Returns when the first `count` of a direction are done. Throws DeviceError where one failed.
  void wait_for_reads(std::int64_t count);
  void wait_for_writes(std::int64_t count);

  /// Tells whether transfers go past the system's cache. Not every file system can.
  [[nodiscard]] bool is_direct() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dstune
