#include "memory.hpp"

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include <sys/mman.h>

#include "machine.hpp"

namespace dstune::emulated {
namespace {

constexpr std::size_t page_bytes = 4096;
/// What CUDA hands out at once of a GPU's memory.
constexpr std::size_t granule_bytes = std::size_t{2} << 20;
/// Small pieces lie behind one another in CUDA's, so seldom where a page begins.
constexpr std::size_t small_bytes = std::size_t{1} << 20;
constexpr std::size_t offset_of_small = 512;

std::size_t rounded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

struct Piece {
  int device = -1;  ///< -1: the host's
  std::byte* mapped = nullptr;
  std::size_t mapped_bytes = 0, bytes = 0, counted_bytes = 0;

  void protect(int how) const {
    if (mprotect(mapped, mapped_bytes, how) != 0) std::abort();
  }
};

struct Pieces {
  std::mutex mutex;
  std::map<std::byte*, Piece> all;
  int opened = 0;
};

Pieces& pieces() {
  static auto& one = *new Pieces;
  return one;
}

/// With a page behind it that nobody may touch.
void* add(int device, std::size_t bytes, std::size_t offset, std::size_t counted_bytes) {
  Piece piece{device, nullptr, rounded(offset + bytes, page_bytes), bytes, counted_bytes};
  void* const mapped = mmap(nullptr, piece.mapped_bytes + page_bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  piece.mapped = static_cast<std::byte*>(mapped);
  // It is closed and opened again and again, which takes as long as it has pages.
  if (device >= 0) madvise(mapped, piece.mapped_bytes, MADV_HUGEPAGE);
  const std::lock_guard lock(pieces().mutex);
  if (device < 0 || pieces().opened > 0) piece.protect(PROT_READ | PROT_WRITE);
  pieces().all[piece.mapped + offset] = piece;
  return piece.mapped + offset;
}

/// What it was; nothing where none begins there.
Piece remove(void* memory, bool is_host) {
  const std::lock_guard lock(pieces().mutex);
  const auto found = pieces().all.find(static_cast<std::byte*>(memory));
  if (found == pieces().all.end() || (found->second.device < 0) != is_host) return {};
  const Piece piece = found->second;
  pieces().all.erase(found);
  munmap(piece.mapped, piece.mapped_bytes + page_bytes);
  return piece;
}

void open(int change) {
  const std::lock_guard lock(pieces().mutex);
  const bool was_open = pieces().opened > 0;
  pieces().opened += change;
  const bool is_open = pieces().opened > 0;
  if (is_open == was_open) return;
  for (const auto& [begin, piece] : pieces().all)
    if (piece.device >= 0) piece.protect(is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace

void* take_memory(int device, std::size_t bytes) {
  const std::size_t counted_bytes = rounded(bytes, granule_bytes);
  if (!take_bytes(device, counted_bytes)) return nullptr;
  void* const memory = add(device, bytes, bytes < small_bytes ? offset_of_small : 0, counted_bytes);
  if (memory == nullptr) give_back_bytes(device, counted_bytes);
  return memory;
}

bool give_back_memory(void* memory) {
  const Piece piece = remove(memory, false);
  if (piece.mapped != nullptr) give_back_bytes(piece.device, piece.counted_bytes);
  return piece.mapped != nullptr;
}

void* take_pinned(std::size_t bytes) {
  return add(-1, bytes, 0, 0);
}

bool give_back_pinned(void* memory) {
  return remove(memory, true).mapped != nullptr;
}

bool reaches(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(pieces().mutex);
  const auto* const begin = static_cast<const std::byte*>(memory);
  auto behind = pieces().all.upper_bound(const_cast<std::byte*>(begin));
  if (behind == pieces().all.begin()) return false;
  const auto& [first, piece] = *std::prev(behind);
  return begin + bytes <= first + piece.bytes;
}

Opened::Opened() {
  open(+1);
}

Opened::~Opened() {
  open(-1);
}

}  // namespace dstune::emulated
