#pragma once
/// A name for bytes by their content. Local.

#include <string>
#include <string_view>

namespace dstune {

/// MurmurHash3_x64_128 (Austin Appleby, public domain) of the bytes with seed 0: 32 hex digits, h1
/// before h2. For naming things by their content; not for keeping secrets.
std::string hash128(std::string_view bytes);

}  // namespace dstune
