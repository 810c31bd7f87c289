#pragma once
/// Memory of a device with a budget and its own account. The account knows nothing of plans: it is
/// the figure that a plan is checked against. All functions: Local.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace dstune {

/// Bytes that may be held on a device, on the host or on a disk; what does not fit throws
/// OutOfMemory with `name`.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t limit_bytes, const char* name = "memory budget")
      : limit_bytes_(limit_bytes), name_(name) {}
  void take(std::int64_t bytes);
  void give_back(std::int64_t bytes) noexcept;
  [[nodiscard]] std::int64_t limit_bytes() const { return limit_bytes_; }
  [[nodiscard]] std::int64_t held_bytes() const { return held_bytes_; }
  void set_limit_bytes(std::int64_t limit_bytes) { limit_bytes_ = limit_bytes; }

 private:
  std::int64_t limit_bytes_;
  const char* name_;
  std::int64_t held_bytes_ = 0;
};

/// The source of an arena's memory. Local.
class MemorySource {
 public:
  MemorySource() = default;
  virtual ~MemorySource() = default;
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;
  /// Bytes from a multiple of 4096 on. Throws OutOfMemory where they are refused.
  virtual std::byte* take(std::int64_t bytes) = 0;
  virtual void give_back(std::byte* begin, std::int64_t bytes) noexcept = 0;
};

/// This host's pages, huge ones where the system has them.
class SystemMemory : public MemorySource {
 public:
  std::byte* take(std::int64_t bytes) override;
  void give_back(std::byte* begin, std::int64_t bytes) noexcept override;
};

/// One contiguous piece of memory, kept from experiment to experiment and grown where needed. Users
/// acquire and release ranges of it; the arena refuses overlaps (LogicError) and remembers the
/// highest byte ever acquired and, at its fullest instant, how much each category held.
class Arena {
 public:
  static constexpr int max_categories = 16;

  /// Both outlive it.
  Arena(MemoryBudget& budget, MemorySource& source) : budget_(&budget), source_(&source) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Makes it at least this large and clears the account; nothing may be acquired. The content is
  /// undefined. Throws OutOfMemory (budget, or the source's refusal) and is then empty.
  void prepare(std::int64_t bytes);
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::int64_t capacity_bytes() const { return capacity_bytes_; }
  /// Gives everything back to budget and source, or after a failure leaks it (a late peer may still
  /// write into it): the budget then stays reduced.
  void free() noexcept;
  void leak() noexcept;

  /// A range of at least one byte inside the capacity. Throws LogicError, as does the release of
  /// what is not held.
  void acquire(std::int64_t offset_bytes, std::int64_t bytes, int category);
  void release(std::int64_t offset_bytes);

  struct Account {
    std::int64_t high_water_bytes = 0;  ///< end of the highest range ever acquired
    std::int64_t peak_live_bytes = 0;
    std::array<std::int64_t, max_categories> categories_at_peak{};
  };
  [[nodiscard]] const Account& account() const { return account_; }

 private:
  struct Range {
    std::int64_t end_bytes;
    int category;
  };
  MemoryBudget* budget_;
  MemorySource* source_;
  std::byte* base_ = nullptr;
  std::int64_t capacity_bytes_ = 0;
  std::map<std::int64_t, Range> live_;
  std::int64_t live_bytes_ = 0;
  std::array<std::int64_t, max_categories> live_categories_{};
  Account account_;
};

}  // namespace dstune
