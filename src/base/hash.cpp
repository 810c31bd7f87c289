#include "dstune/base/hash.hpp"

#include <bit>

#include <fmt/format.h>

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

}  // namespace

Digest digest128(std::string_view bytes) {
  std::uint64_t h1 = 0;
  std::uint64_t h2 = 0;
  std::string_view rest = bytes;
  for (; rest.size() >= 16; rest.remove_prefix(16)) {
    h1 ^= mix_low(little_endian(rest.substr(0, 8)));
    h1 = (std::rotl(h1, 27) + h2) * 5 + 0x52dce729;
    h2 ^= mix_high(little_endian(rest.substr(8, 8)));
    h2 = (std::rotl(h2, 31) + h1) * 5 + 0x38495ab5;
  }
  if (rest.size() > 8) h2 ^= mix_high(little_endian(rest.substr(8)));
  if (!rest.empty()) h1 ^= mix_low(little_endian(rest.substr(0, 8)));

  h1 ^= bytes.size();
  h2 ^= bytes.size();
  h1 += h2;
  h2 += h1;
  h1 = finish(h1);
  h2 = finish(h2);
  h1 += h2;
  h2 += h1;
  return {h1, h2};
}

std::string hash128(std::string_view bytes) {
  const Digest digest = digest128(bytes);
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

}  // namespace dstune
