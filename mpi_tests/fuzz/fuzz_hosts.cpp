// Any text is a hostfile or an InputError, a filter or a UsageError; what is read holds together.
// The first byte says what the rest is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "dstune/space/hosts.hpp"

namespace dstune {
namespace {

void check_hostfile(const Hostfile& file) {
  require(!file.hosts.empty(), "a hostfile names a host");
  std::set<std::string> names;
  std::int64_t total = 0;
  int line = 0;
  for (const HostEntry& host : file.hosts) {
    require(names.insert(host.name).second, "a host is named once");
    require(host.num_slots >= 1, "a host has a slot");
    require(host.line > line, "lines ascend");
    line = host.line;
    total += host.num_slots;
  }
  require(total <= max_slots, "slots are limited");
  const JobHosts job = job_of(file);
  require(select_ranks(job, file, std::nullopt) == job.ranks_of_node, "a cluster is its own job");
}

void check_filter(const std::vector<HostSlots>& hosts, const HostFilter& filter) {
  for (const HostFilter::Item& item : filter.items) {
    require(std::adjacent_find(item.slots.begin(), item.slots.end(), std::greater_equal<>()) ==
                item.slots.end(),
            "slots ascend");
    require(item.slots.empty() || item.slots.front() >= 0, "slots are not negative");
  }
  const auto left = filter_hosts(hosts, filter, "the job");
  require(left.size() == hosts.size(), "a filter loses no host");
  std::size_t num_left = 0;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    require(left[i].name == hosts[i].name, "a filter keeps the order");
    require(std::includes(hosts[i].slots.begin(), hosts[i].slots.end(), left[i].slots.begin(),
                          left[i].slots.end()),
            "a filter adds no slot");
    num_left += left[i].slots.size();
  }
  require(num_left > 0, "a filter leaves something");
}

/// Include and exclude of one text share the slots out between them.
void check_opposites(const std::vector<HostSlots>& hosts, std::string_view text) {
  const auto in = filter_hosts(hosts, parse_host_filter(text, false), "the job");
  const auto out = filter_hosts(hosts, parse_host_filter(text, true), "the job");
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::vector<int> all = in[i].slots;
    all.insert(all.end(), out[i].slots.begin(), out[i].slots.end());
    std::sort(all.begin(), all.end());
    require(all == hosts[i].slots, "what is not included is excluded");
  }
}

}  // namespace
}  // namespace dstune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dstune;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<HostSlots> hosts{{"a", {0, 1, 2, 3}, 1}, {"b.c", {0}, 2}, {"b.d", {1, 3}, 3}};
  try {
    switch (data[0] % 3) {
      case 0:
        check_hostfile(parse_hostfile(text, "fuzz"));
        break;
      case 1:
        check_filter(hosts, parse_host_filter(text, false));
        check_filter(hosts, parse_host_filter(text, true));
        break;
      default:
        check_opposites(hosts, text);
    }
  } catch (const InputError& error) {
    require(!error.problems().empty(), "a refusal names a problem");
  } catch (const UsageError&) {
    return 0;
  }
  return 0;
}
