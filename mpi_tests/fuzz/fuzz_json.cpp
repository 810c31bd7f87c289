// Any text is a document or an InputError.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dstune/base/json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using dstune::json::Document;
  try {
    (void)Document::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const dstune::InputError&) {
    return 0;
  }
  return 0;
}
