#include <algorithm>

#include "dstune/space/hosts.hpp"

namespace dstune {
namespace {

constexpr std::size_t longest_name = 253;  // of the domain name system
constexpr std::size_t longest_quote = 60;
constexpr std::size_t max_listed = 8;

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

bool is_letter_or_digit(char letter) {
  return is_digit(letter) || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}

bool is_hexadecimal(char letter) {
  return is_digit(letter) || (letter >= 'a' && letter <= 'f') || (letter >= 'A' && letter <= 'F');
}

bool is_ipv6(std::string_view text) {
  return std::count(text.begin(), text.end(), ':') >= 2 &&
         std::all_of(text.begin(), text.end(), [](char letter) {
           return is_hexadecimal(letter) || letter == ':' || letter == '.';
         });
}

std::string_view short_name(std::string_view host) {
  return host.substr(0, host.find('.'));
}

}  // namespace

bool is_host_name(std::string_view text) {
  if (text.empty() || text.size() > longest_name) return false;
  if (is_ipv6(text)) return true;
  return is_letter_or_digit(text.front()) && std::all_of(text.begin(), text.end(), [](char letter) {
           return is_letter_or_digit(letter) || letter == '-' || letter == '_' || letter == '.';
         });
}

bool is_address(std::string_view host) {
  const bool is_ipv4 = std::count(host.begin(), host.end(), '.') == 3 &&
                       std::all_of(host.begin(), host.end(),
                                   [](char letter) { return is_digit(letter) || letter == '.'; });
  return is_ipv4 || is_ipv6(host);
}

HostNames::HostNames(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    whole_[names[i]].push_back(i);
    if (!is_address(names[i])) short_[std::string(short_name(names[i]))].push_back(i);
  }
}

std::vector<std::size_t> HostNames::find(std::string_view host) const {
  if (const auto found = whole_.find(host); found != whole_.end()) return found->second;
  if (is_address(host)) return {};
  const auto found = short_.find(short_name(host));
  return found != short_.end() ? found->second : std::vector<std::size_t>{};
}

std::string quoted(std::string_view text) {
  std::string shown = "\"";
  for (const char letter : text.substr(0, longest_quote)) {
    shown += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return shown + (text.size() > longest_quote ? "…\"" : "\"");
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), max_listed); ++i) {
    text += (i > 0 ? ", " : "") + names[i];
  }
  if (names.size() > max_listed) {
    text += " and " + std::to_string(names.size() - max_listed) + " more";
  }
  return text;
}

}  // namespace dstune
