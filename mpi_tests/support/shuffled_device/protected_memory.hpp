#pragma once
/// Memory of a device that has its own: whoever touches it while the device does nothing ends the
/// program.

#include <map>

#include "dstune/device/memory.hpp"

namespace dstune::test {

class ProtectedMemory : public MemorySource {
 public:
  std::byte* take(std::int64_t bytes) override;
  void give_back(std::byte* begin, std::int64_t bytes) noexcept override;

  /// While one of these lives the memory can be touched.
  class Opened {
   public:
    explicit Opened(ProtectedMemory& memory) : memory_(memory) { memory_.open(+1); }
    ~Opened() { memory_.open(-1); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    ProtectedMemory& memory_;
  };
  [[nodiscard]] bool holds(const void* address) const;

 private:
  void open(int change);

  std::map<std::byte*, std::int64_t> taken_;
  int opened_ = 0;
};

}  // namespace dstune::test
