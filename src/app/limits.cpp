#include "limits.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <sys/resource.h>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

/// A limit as bash's ulimit sets it, in KiB.
struct Limit {
  int resource;
  std::string_view what, option;
  std::int64_t least_bytes;  ///< the program starts with half as much, its libraries being there
};
constexpr Limit limits[] = {{RLIMIT_STACK, "the stack", "-s", std::int64_t{512} << 10},
                            {RLIMIT_AS, "the address space", "-v", std::int64_t{480} << 20},
                            {RLIMIT_DATA, "the memory for data", "-d", std::int64_t{200} << 20}};

/// Nothing: there is none.
std::optional<std::int64_t> bytes_of(const Limit& limit) {
  rlimit found{};
  if (getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &found) != 0 ||
      found.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return static_cast<std::int64_t>(found.rlim_cur);
}

std::string text_of(const Limit& limit, std::int64_t bytes) {
  return fmt::format("{} is limited to {} (ulimit {})", limit.what, format_bytes(bytes),
                     limit.option);
}

}  // namespace

std::string low_limit() {
  for (const Limit& limit : limits) {
    const auto bytes = bytes_of(limit);
    if (bytes && *bytes < limit.least_bytes)
      return fmt::format(
          "{}, and this program needs {} to start: raise it before it is started, with ulimit {} "
          "unlimited or in the batch system's request",
          text_of(limit, *bytes), format_bytes(limit.least_bytes), limit.option);
  }
  return "";
}

std::string memory_limit_hint() {
  for (const Limit& limit : limits) {
    if (limit.resource == RLIMIT_STACK) continue;
    if (const auto bytes = bytes_of(limit))
      return fmt::format("; {}: raise it where a rank needs more", text_of(limit, *bytes));
  }
  return "";
}

}  // namespace dstune
