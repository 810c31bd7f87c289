#pragma once
/// Many texts, kept one behind the other in large blocks. Local.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstune {

/// Texts stay as long as the pool, each of them once.
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

  [[nodiscard]] Place append(std::string_view text);
  /// The slot of a text: it has the text's place, or is the free one where that belongs.
  [[nodiscard]] Place& slot_of(std::string_view text);
  void grow();

  std::vector<std::string> blocks_;
  std::vector<Place> slots_;  ///< by hash, 0: free; at most half of them are taken
  std::size_t num_texts_ = 0;
};

}  // namespace dstune
