#pragma once
/// Many texts, kept one behind the other in large blocks. Local.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstune {

/// Texts stay as long as the pool. A text that was added a short while ago is kept once.
class TextPool {
 public:
  /// Stands for a text from now on; the empty text's is 0.
  using Place = std::uint64_t;

  [[nodiscard]] Place add(std::string_view text);
  /// Valid as long as the pool.
  [[nodiscard]] std::string_view text(Place place) const;
  /// Bytes of all blocks.
  [[nodiscard]] std::size_t bytes() const;

 private:
  static constexpr std::size_t block_bytes = std::size_t{1} << 20;
  static constexpr std::size_t num_recent = 4096;

  std::vector<std::string> blocks_;
  std::array<Place, num_recent> recent_{};  ///< by hash
};

}  // namespace dstune
