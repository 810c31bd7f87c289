#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "dstune/report/hash128.hpp"
#include "dstune/report/history.hpp"

namespace dstune {

namespace {

void append_text(std::string& out, const std::string& text) {
  // The length in front keeps "a","b" and "a,b" apart whatever the text holds.
  out += fmt::format("s{}:", text.size());
  out += text;
}

/// 5e8 and 500000000 are the same number, and so are -0.0 and 0.
void append_float(std::string& out, double number) {
  if (std::trunc(number) == number && number >= -0x1p63 && number < 0x1p63)
    out += fmt::format("n{}", static_cast<std::int64_t>(number));
  else if (std::trunc(number) == number && number > 0 && number < 0x1p64)
    out += fmt::format("n{}", static_cast<std::uint64_t>(number));
  else
    out += fmt::format("n{:.17g}", number);
}

void append_canonical(std::string& out, const json::Value& value) {
  if (value.is_object()) {
    std::vector<std::pair<const std::string*, const json::Value*>> members;
    for (const auto& member : value.items()) members.emplace_back(&member.key(), &member.value());
    std::sort(members.begin(), members.end(),
              [](const auto& a, const auto& b) { return *a.first < *b.first; });
    out += fmt::format("o{}{{", members.size());
    for (const auto& [key, member] : members) {
      append_text(out, *key);
      append_canonical(out, *member);
    }
    out += '}';
  } else if (value.is_array()) {
    out += fmt::format("a{}[", value.size());
    for (const json::Value& element : value) append_canonical(out, element);
    out += ']';
  } else if (value.is_string()) {
    append_text(out, value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    append_float(out, value.get<double>());
  } else if (value.is_number_unsigned()) {
    out += fmt::format("n{}", value.get<std::uint64_t>());
  } else if (value.is_number_integer()) {
    out += fmt::format("n{}", value.get<std::int64_t>());
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? 't' : 'f';
  } else {
    out += '0';
  }
}

}  // namespace

std::string record_key(const json::Value& identity) {
  std::string canonical;
  append_canonical(canonical, identity);
  return hash128(canonical);
}

}  // namespace dstune
