#include "dstune/base/text_pool.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

using Length = std::uint32_t;

constexpr unsigned bits_of_offset = 32;

}  // namespace

TextPool::Place TextPool::add(std::string_view text) {
  if (text.empty()) return 0;
  require(text.size() < (std::size_t{1} << (bits_of_offset - 1)), "a text of less than 2 GiB");
  if (2 * (num_texts_ + 1) > slots_.size()) grow();
  Place& slot = slot_of(text);
  if (slot == 0) {
    slot = append(text);
    ++num_texts_;
  }
  return slot;
}

TextPool::Place& TextPool::slot_of(std::string_view text) {
  std::size_t at = std::hash<std::string_view>()(text) % slots_.size();
  while (slots_[at] != 0 && this->text(slots_[at]) != text) at = (at + 1) % slots_.size();
  return slots_[at];
}

void TextPool::grow() {
  constexpr std::size_t fewest = 64;
  const std::vector<Place> before = std::exchange(slots_, {});
  slots_.resize(std::max(fewest, 2 * before.size()));
  for (const Place place : before)
    if (place != 0) slot_of(text(place)) = place;
}

TextPool::Place TextPool::append(std::string_view text) {
  const std::size_t needed = sizeof(Length) + text.size();
  if (blocks_.empty() || blocks_.back().size() + needed > blocks_.back().capacity()) {
    blocks_.emplace_back();
    blocks_.back().reserve(std::max(block_bytes, needed));
  }
  std::string& block = blocks_.back();
  const Place place = (Place{blocks_.size()} << bits_of_offset) | block.size();
  const auto length = static_cast<Length>(text.size());
  block.append(reinterpret_cast<const char*>(&length), sizeof(length));
  block += text;
  return place;
}

std::string_view TextPool::text(Place place) const {
  if (place == 0) return {};
  const std::string& block = blocks_[(place >> bits_of_offset) - 1];
  const auto offset = static_cast<std::size_t>(place & ((Place{1} << bits_of_offset) - 1));
  Length length = 0;
  std::memcpy(&length, block.data() + offset, sizeof(length));
  return {block.data() + offset + sizeof(length), length};
}

std::size_t TextPool::bytes() const {
  std::size_t sum = 0;
  for (const std::string& block : blocks_) sum += block.capacity();
  return sum;
}

}  // namespace dstune
