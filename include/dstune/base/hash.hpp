#pragma once
/// The hashes of contents and of values in tables. Not for keeping secrets. Local.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dstune {

/// 128 bits of a hash: among millions of values, equal ones are taken for the same thing.
struct Digest {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Digest&) const = default;
};
struct DigestHash {
  std::size_t operator()(const Digest& digest) const { return digest.low; }
};

/// MurmurHash3_x64_128 (Austin Appleby, public domain) of the bytes with seed 0: h1, then h2. The
/// same on every machine.
Digest digest128(std::string_view bytes);
/// The same in 32 hex digits: what the journal names things by.
std::string hash128(std::string_view bytes);

/// Mixes one more value into a hash that is kept in memory alone.
template <class Value>
void mix_hash(std::size_t& hash, const Value& value) {
  hash = hash * 0x9E3779B97F4A7C15 + std::hash<Value>()(value);
}

}  // namespace dstune
