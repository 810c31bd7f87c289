#pragma once
/// Goes through the members of a product, changing only what differs from one to the next. Local.

#include <cstdint>
#include <vector>

#include "dstune/space/search_space.hpp"

namespace dstune {

class MemberCursor {
 public:
  /// At member 0. `product` outlives it.
  explicit MemberCursor(const Product& product);

  /// The candidate of each dimension.
  [[nodiscard]] const std::vector<std::size_t>& digits() const { return digits_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  /// Goes on; after the last member it is at the first again. Returns whether a knob changed.
  bool advance();

 private:
  const Product* product_;
  std::vector<std::size_t> digits_;
  Settings settings_;
};

/// How far one step of each dimension goes in a member's number; the last goes by 1.
std::vector<std::uint64_t> strides_of(const Product& product);
/// The candidate of each dimension of a member.
std::vector<std::size_t> digits_of(const Product& product, std::uint64_t number);

}  // namespace dstune
