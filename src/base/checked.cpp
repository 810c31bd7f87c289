#include "dstune/base/checked.hpp"

#include <fmt/format.h>

namespace dstune {

void throw_overflow(std::string_view what) {
  throw OverflowError(fmt::format("{}: more than 64 bits hold", what));
}

}  // namespace dstune
