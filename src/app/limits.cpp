#include "limits.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sys/resource.h>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

/// A limit as bash's ulimit sets it.
struct Limit {
  int resource;
  std::string_view what, option;
  std::int64_t least;  ///< the program starts with half as much, its libraries being there
};
/// Bytes, and a number of files.
constexpr Limit limits[] = {{RLIMIT_STACK, "the stack", "-s", std::int64_t{512} << 10},
                            {RLIMIT_AS, "the address space", "-v", std::int64_t{480} << 20},
                            {RLIMIT_DATA, "the memory for data", "-d", std::int64_t{200} << 20},
                            {RLIMIT_NOFILE, "the number of open files", "-n", 40}};

bool is_of_memory(const Limit& limit) {
  return limit.resource == RLIMIT_AS || limit.resource == RLIMIT_DATA;
}

/// Nothing: there is none.
std::optional<std::int64_t> amount_of(const Limit& limit) {
  rlimit found{};
  if (getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &found) != 0 ||
      found.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return static_cast<std::int64_t>(found.rlim_cur);
}

std::string amount_text(const Limit& limit, std::int64_t amount) {
  return limit.resource == RLIMIT_NOFILE ? std::to_string(amount) : format_bytes(amount);
}

std::string text_of(const Limit& limit, std::int64_t amount) {
  return fmt::format("{} is limited to {} (ulimit {})", limit.what, amount_text(limit, amount),
                     limit.option);
}

}  // namespace

std::string low_limit() {
  for (const Limit& limit : limits) {
    const auto amount = amount_of(limit);
    if (amount && *amount < limit.least)
      return fmt::format(
          "{}, and this program needs {} to start: raise it before it is started, with ulimit {} "
          "{} or in the batch system's request",
          text_of(limit, *amount), amount_text(limit, limit.least), limit.option,
          limit.resource == RLIMIT_NOFILE ? "1024" : "unlimited");
  }
  return "";
}

std::string memory_limit_hint() {
  for (const Limit& limit : limits) {
    if (!is_of_memory(limit)) continue;
    if (const auto amount = amount_of(limit))
      return fmt::format("; {}: raise it where a rank needs more", text_of(limit, *amount));
  }
  return "";
}

}  // namespace dstune
