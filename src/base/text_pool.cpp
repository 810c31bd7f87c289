#include "dstune/base/text_pool.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

using Length = std::uint32_t;

constexpr unsigned bits_of_offset = 32;

}  // namespace

TextPool::Place TextPool::add(std::string_view text) {
  if (text.empty()) return 0;
  require(text.size() < (std::size_t{1} << (bits_of_offset - 1)), "a text of less than 2 GiB");
  Place& recent = recent_[std::hash<std::string_view>()(text) % num_recent];
  if (recent != 0 && this->text(recent) == text) return recent;
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
  recent = place;
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
