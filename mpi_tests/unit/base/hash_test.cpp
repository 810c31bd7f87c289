#include "dstune/base/hash.hpp"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "dstune/base/piece_hash.hpp"

namespace dstune {
namespace {

constexpr std::string_view fox = "The quick brown fox jumps over the lazy dog";
/// Of MurmurHash3_x64_128 as its author wrote it.
constexpr std::string_view hash_of_fox = "e34bbc7bbc071b6c7a433ca9c49a9347";

TEST(Hash, IsThatOfTheAuthor) {
  EXPECT_EQ(hash128(fox), hash_of_fox);
  EXPECT_EQ(hash128(""), std::string(32, '0'));
}

TEST(Hash, PiecesOfAnySizeMakeTheSame) {
  for (std::size_t size = 1; size <= fox.size(); ++size) {
    PieceHash hash;
    for (std::size_t begin = 0; begin < fox.size(); begin += size)
      hash.add(fox.substr(begin, size));
    hash.add("");
    EXPECT_EQ(hash.text(), hash_of_fox) << size;
  }
}

}  // namespace
}  // namespace dstune
