#include "dstune/space/host_filter.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include <fmt/format.h>

#include "hosts/host_words.hpp"

namespace dstune {
namespace {

constexpr const char* syntax = "write HOST, or HOST:SLOT,SLOT, with @ between hosts";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// The part before the separator; `rest` becomes what follows it, nothing after the last part.
std::string_view next_part(std::optional<std::string_view>& rest, char separator) {
  const std::size_t at = rest->find(separator);
  const std::string_view part = rest->substr(0, at);
  if (at == std::string_view::npos) {
    rest.reset();
  } else {
    rest->remove_prefix(at + 1);
  }
  return part;
}

int read_slot(std::string_view text, const std::string& place) {
  const std::string_view digits = trimmed(text);
  int slot = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slot);
  if (error == std::errc{} && end == digits.data() + digits.size() && slot >= 0 &&
      digits.front() != '-') {
    return slot;
  }
  if (error == std::errc{} && slot >= 0 && end != digits.data() + digits.size() && *end == '-') {
    throw UsageError(place + quoted(text) +
                     " is a range, which this syntax does not have: write every slot, as in 0,1,2");
  }
  throw UsageError(place + quoted(text) + " is no slot (0, 1, 2, …): " + syntax);
}

/// "--include a:9: " for messages.
std::string place_of(const char* option, std::string_view part) {
  return std::string(option) + " " + quoted(part) + ": ";
}

std::string slots_text(const HostSlots& host) {
  const bool has_no_gap =
      host.slots.back() - host.slots.front() + 1 == static_cast<int>(host.slots.size());
  return has_no_gap && host.slots.size() > 1
             ? fmt::format("{} to {}", host.slots.front(), host.slots.back())
             : fmt::format("{}", fmt::join(host.slots, ", "));
}

}  // namespace

HostFilter parse_host_filter(std::string_view text, bool is_exclude) {
  HostFilter filter;
  filter.is_exclude = is_exclude;
  std::map<std::string, std::size_t, std::less<>> index;
  std::optional<std::string_view> hosts = text;
  while (hosts) {
    const std::string_view part = next_part(hosts, '@');
    const std::string place = place_of(filter.option(), part);
    std::optional<std::string_view> rest = part;
    const std::string_view name = next_part(rest, ':');
    if (!is_host_name(name)) {
      throw UsageError(place + quoted(name) + " is no host name: " + syntax);
    }
    const auto [known, is_new] = index.try_emplace(std::string(name), filter.items.size());
    if (is_new) filter.items.push_back({std::string(name), {}});
    auto& slots = filter.items[known->second].slots;
    while (rest) slots.push_back(read_slot(next_part(rest, ','), place));
  }
  for (HostFilter::Item& item : filter.items) {
    std::sort(item.slots.begin(), item.slots.end());
    item.slots.erase(std::unique(item.slots.begin(), item.slots.end()), item.slots.end());
  }
  return filter;
}

std::vector<HostSlots> filter_hosts(std::vector<HostSlots> hosts, const HostFilter& filter,
                                    const std::string& where) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.name);
  const HostNames known(names);
  // Of each host the slots that are named.
  std::vector<std::set<int>> named(hosts.size());
  for (const HostFilter::Item& item : filter.items) {
    const std::string place = std::string(filter.option()) + " " + item.name + ": ";
    const auto found = known.find(item.name);
    if (found.size() != 1) {
      throw UsageError(
          fmt::format("{}{} in {}: take one of {}", place,
                      found.empty() ? "there is no such host" : "several hosts have this name",
                      where, listed(names)));
    }
    const HostSlots& host = hosts[found.front()];
    for (const int slot : item.slots) {
      if (!std::binary_search(host.slots.begin(), host.slots.end(), slot)) {
        throw UsageError(fmt::format("{}{} in {} has no slot {}: take of {}", place, host.name,
                                     where, slot, slots_text(host)));
      }
    }
    const std::vector<int>& slots = item.slots.empty() ? host.slots : item.slots;
    named[found.front()].insert(slots.begin(), slots.end());
  }

  bool is_any_left = false;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::erase_if(hosts[i].slots,
                  [&](int slot) { return named[i].contains(slot) == filter.is_exclude; });
    is_any_left = is_any_left || !hosts[i].slots.empty();
  }
  if (!is_any_left) {
    throw UsageError(fmt::format("{} leaves no slot of {}: name fewer", filter.option(), where));
  }
  return hosts;
}

}  // namespace dstune
