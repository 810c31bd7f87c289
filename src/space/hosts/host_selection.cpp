#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/space/hosts.hpp"

namespace dstune {
namespace {

constexpr const char* syntax = "write HOST, or HOST:SLOT,SLOT, with @ between hosts";

int read_slot(std::string_view text, const std::string& place) {
  const std::string_view digits = trimmed(text, host_blanks);
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

std::string slots_text(const HostSlots& host) {
  const bool has_no_gap =
      host.slots.back() - host.slots.front() + 1 == static_cast<int>(host.slots.size());
  return has_no_gap && host.slots.size() > 1
             ? fmt::format("{} to {}", host.slots.front(), host.slots.back())
             : fmt::format("{}", fmt::join(host.slots, ", "));
}

HostSlots with_slots(const std::string& name, std::size_t count, int line) {
  HostSlots host{name, std::vector<int>(count), line};
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return host;
}

/// Every host calls itself localhost; the job's input is read on that of rank 0, its first.
bool is_own_host(const HostNames& known, const std::string& name) {
  return name == "localhost" && known.find(name).empty();
}

/// Finds the hosts of a file among those of the job, each once.
class Matching {
 public:
  Matching(const JobHosts& job, const std::string& path)
      : job_(job), known_(job.names), path_(path) {}

  void add(const HostSlots& host) {
    const auto node = node_of(host);
    if (!node) return;
    const auto [previous, is_first] = line_of_node_.emplace(*node, &host);
    if (!is_first) {
      problem(host,
              fmt::format("{} and {} (line {}) are the same host of the job, {}: name it once",
                          host.name, previous->second->name, previous->second->line,
                          job_.names[*node]));
      return;
    }
    const auto& ranks = job_.ranks_of_node[*node];
    if (static_cast<std::size_t>(host.slots.back()) >= ranks.size()) {
      problem(host,
              fmt::format("{} has slots up to number {} here, but {} rank(s) of the job: start "
                          "more ranks there, or give it slots={}",
                          host.name, host.slots.back(), ranks.size(), ranks.size()));
      return;
    }
    for (const int slot : host.slots) {
      selected_[*node].push_back(ranks[static_cast<std::size_t>(slot)]);
    }
  }

  std::vector<std::vector<int>> finish() {
    problems_.check();
    std::vector<std::vector<int>> nodes;
    for (auto& [node, ranks] : selected_) nodes.push_back(std::move(ranks));
    return nodes;
  }

 private:
  std::optional<std::size_t> node_of(const HostSlots& host) {
    const auto found = known_.find(host.name);
    if (found.size() == 1) return found.front();
    if (is_own_host(known_, host.name)) return 0;
    if (!found.empty()) {
      problem(host, fmt::format("several hosts of the job are called {} ({}): write the full name",
                                host.name, listed(job_.names)));
    } else if (is_address(host.name)) {
      problem(host, fmt::format("{} is an address, but the job's hosts are known by their names "
                                "({}): write these",
                                host.name, listed(job_.names)));
    } else {
      problem(host, fmt::format("no rank of the job runs on {} (its hosts: {}): start ranks there, "
                                "or take the line out",
                                host.name, listed(job_.names)));
    }
    return std::nullopt;
  }
  void problem(const HostSlots& host, const std::string& message) {
    problems_.add({path_, "", host.line, message});
  }

  const JobHosts& job_;
  const HostNames known_;
  const std::string& path_;
  std::map<std::size_t, const HostSlots*> line_of_node_;
  std::map<std::size_t, std::vector<int>> selected_;  // in the order of the job's nodes
  json::Problems problems_;
};

std::vector<std::vector<int>> filter_job(const JobHosts& job, HostFilter filter) {
  const HostNames known(job.names);
  for (HostFilter::Item& item : filter.items) {
    if (is_own_host(known, item.name)) item.name = job.names.front();
  }
  std::vector<HostSlots> hosts;
  for (std::size_t node = 0; node < job.names.size(); ++node) {
    hosts.push_back(with_slots(job.names[node], job.ranks_of_node[node].size(), 0));
  }
  hosts = filter_hosts(std::move(hosts), filter, "the job");
  std::vector<std::vector<int>> nodes;
  for (std::size_t node = 0; node < hosts.size(); ++node) {
    std::vector<int> ranks;
    for (const int slot : hosts[node].slots) {
      ranks.push_back(job.ranks_of_node[node][static_cast<std::size_t>(slot)]);
    }
    if (!ranks.empty()) nodes.push_back(std::move(ranks));
  }
  return nodes;
}

}  // namespace

HostFilter parse_host_filter(std::string_view text, bool is_exclude) {
  HostFilter filter;
  filter.is_exclude = is_exclude;
  std::map<std::string, std::size_t, std::less<>> index;
  for (const std::string_view part : split(text, '@')) {
    const std::string place = fmt::format("{} {}: ", filter.option(), quoted(part));
    const std::size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    if (!is_host_name(name)) {
      throw UsageError(place + quoted(name) + " is no host name: " + syntax);
    }
    const auto [known, is_new] = index.try_emplace(std::string(name), filter.items.size());
    if (is_new) filter.items.push_back({std::string(name), {}});
    if (colon == std::string_view::npos) continue;
    auto& slots = filter.items[known->second].slots;
    for (const std::string_view slot : split(part.substr(colon + 1), ','))
      slots.push_back(read_slot(slot, place));
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
  // The named slots of each host.
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

JobHosts job_of(const Hostfile& file) {
  JobHosts job;
  int next_rank = 0;
  for (const HostEntry& entry : file.hosts) {
    job.names.push_back(entry.name);
    auto& ranks = job.ranks_of_node.emplace_back(static_cast<std::size_t>(entry.num_slots));
    std::iota(ranks.begin(), ranks.end(), next_rank);
    next_rank += entry.num_slots;
  }
  return job;
}

std::vector<std::vector<int>> select_ranks(const JobHosts& job, const std::optional<Hostfile>& file,
                                           const std::optional<HostFilter>& filter) {
  if (!file) return filter ? filter_job(job, *filter) : job.ranks_of_node;
  std::vector<HostSlots> hosts;
  for (const HostEntry& entry : file->hosts) {
    hosts.push_back(with_slots(entry.name, static_cast<std::size_t>(entry.num_slots), entry.line));
  }
  if (filter) hosts = filter_hosts(std::move(hosts), *filter, file->path);
  Matching matching(job, file->path);
  for (const HostSlots& host : hosts) {
    if (!host.slots.empty()) matching.add(host);
  }
  return matching.finish();
}

}  // namespace dstune
