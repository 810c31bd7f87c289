#pragma once
/// The hash of a content that nobody holds as a whole. Local.

#include <cstdint>
#include <string>
#include <string_view>

#include "dstune/base/hash.hpp"

namespace dstune {

/// digest128() and hash128() of bytes that come piece by piece.
class PieceHash {
 public:
  void add(std::string_view bytes);
  [[nodiscard]] Digest digest() const;
  [[nodiscard]] std::string text() const;

 private:
  void take(std::string_view block);

  std::uint64_t h1_ = 0, h2_ = 0, size_ = 0;
  std::string rest_;  ///< of less than a block
};

}  // namespace dstune
