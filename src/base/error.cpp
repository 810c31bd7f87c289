#include "dstune/base/error.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"

namespace dstune {

namespace {

std::string joined(const std::vector<Problem>& problems) {
  require(!problems.empty(), "an InputError names at least one problem");
  // No view: clang 14, which builds the fuzzers, does not compile libstdc++'s.
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.text());
  return fmt::format("{}", fmt::join(texts, "\n"));
}

std::string lack_text(std::size_t requested_bytes, std::size_t available_bytes) {
  const auto text = [](std::size_t bytes) {
    return format_bytes(static_cast<std::int64_t>(bytes));
  };
  const std::string available = text(available_bytes) + " available";
  return requested_bytes == 0 ? available : text(requested_bytes) + " asked for, " + available;
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
    : Error(what + ": " + lack_text(requested_bytes, available_bytes)) {}

void require(bool condition, const char* what, const char* file, int line) {
  if (condition) return;
  throw LogicError(fmt::format("{}:{}: broken invariant: {}", file, line, what));
}

}  // namespace dstune
