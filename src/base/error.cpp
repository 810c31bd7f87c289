#include "dstune/base/error.hpp"

#include <fmt/format.h>

#include "dstune/base/units.hpp"

namespace dstune {

namespace {

std::string joined(const std::vector<Problem>& problems) {
  require(!problems.empty(), "an InputError names at least one problem");
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text();
  }
  return text;
}

std::string bytes_text(std::size_t bytes) {
  return format_bytes(static_cast<std::int64_t>(bytes));
}

std::string lack_text(std::size_t requested_bytes, std::size_t available_bytes) {
  const std::string available = bytes_text(available_bytes) + " available";
  return requested_bytes == 0 ? available
                              : bytes_text(requested_bytes) + " asked for, " + available;
}

}  // namespace

std::string Problem::text() const {
  std::string out = file;
  if (line > 0) out += (out.empty() ? "line " : ":") + std::to_string(line);
  if (!out.empty()) out += ": ";
  if (!pointer.empty()) out += pointer + ": ";
  return out + message;
}

InputError::InputError(std::vector<Problem> problems)
    : Error(joined(problems)), problems_(std::move(problems)) {}

OutOfMemory::OutOfMemory(std::size_t requested_bytes, std::size_t available_bytes,
                         const std::string& what)
    : Error(what + ": " + lack_text(requested_bytes, available_bytes)),
      requested_bytes_(requested_bytes),
      available_bytes_(available_bytes) {}

void require(bool condition, const char* what, const char* file, int line) {
  if (condition) return;
  throw LogicError(fmt::format("{}:{}: broken invariant: {}", file, line, what));
}

}  // namespace dstune
