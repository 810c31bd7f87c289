#include "dstune/base/hash.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "dstune/base/piece_hash.hpp"

namespace dstune {

namespace {

constexpr std::uint64_t c1 = 0x87c37b91114253d5;
constexpr std::uint64_t c2 = 0x4cf5ad432745937f;

/// Up to eight bytes, the first one lowest, whatever the machine's order.
std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 8; ++i)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return word;
}

std::uint64_t mix_low(std::uint64_t word) {
  return std::rotl(word * c1, 31) * c2;
}

std::uint64_t mix_high(std::uint64_t word) {
  return std::rotl(word * c2, 33) * c1;
}

std::uint64_t finish(std::uint64_t hash) {
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccd;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53;
  hash ^= hash >> 33;
  return hash;
}

constexpr std::size_t block_bytes = 16;

}  // namespace

void PieceHash::take(std::string_view block) {
  h1_ ^= mix_low(little_endian(block.substr(0, 8)));
  h1_ = (std::rotl(h1_, 27) + h2_) * 5 + 0x52dce729;
  h2_ ^= mix_high(little_endian(block.substr(8, 8)));
  h2_ = (std::rotl(h2_, 31) + h1_) * 5 + 0x38495ab5;
}

void PieceHash::add(std::string_view bytes) {
  size_ += bytes.size();
  if (!rest_.empty()) {
    const std::size_t missing = std::min(block_bytes - rest_.size(), bytes.size());
    rest_ += bytes.substr(0, missing);
    bytes.remove_prefix(missing);
    if (rest_.size() < block_bytes) return;
    take(rest_);
    rest_.clear();
  }
  for (; bytes.size() >= block_bytes; bytes.remove_prefix(block_bytes)) take(bytes);
  rest_ = bytes;
}

Digest PieceHash::digest() const {
  std::uint64_t h1 = h1_;
  std::uint64_t h2 = h2_;
  const std::string_view rest = rest_;
  if (rest.size() > 8) h2 ^= mix_high(little_endian(rest.substr(8)));
  if (!rest.empty()) h1 ^= mix_low(little_endian(rest.substr(0, 8)));

  h1 ^= size_;
  h2 ^= size_;
  h1 += h2;
  h2 += h1;
  h1 = finish(h1);
  h2 = finish(h2);
  h1 += h2;
  h2 += h1;
  return {h1, h2};
}

std::string PieceHash::text() const {
  const Digest found = digest();
  return fmt::format("{:016x}{:016x}", found.high, found.low);
}

Digest digest128(std::string_view bytes) {
  PieceHash hash;
  hash.add(bytes);
  return hash.digest();
}

std::string hash128(std::string_view bytes) {
  PieceHash hash;
  hash.add(bytes);
  return hash.text();
}

}  // namespace dstune
