#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "dstune/base/json.hpp"
#include "dstune/space/host_filter.hpp"

namespace dstune {
namespace {

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
