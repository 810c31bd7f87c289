// DeepSpeed's own launcher, by the rules of deepspeed/launcher/runner.py.
#include <filesystem>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "command/launch_plan.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// A host of --include with its slots; none: all of them.
struct IncludedHost {
  std::string name;
  std::vector<std::string> slots;
};

std::vector<IncludedHost> included_hosts(const std::string& filter) {
  std::vector<IncludedHost> hosts;
  for (const std::string_view node : split(filter, '@')) {
    const std::size_t colon = node.find(':');
    IncludedHost host{std::string(node.substr(0, colon)), {}};
    if (colon != node.npos)
      for (const std::string_view slot : split(node.substr(colon + 1), ','))
        host.slots.emplace_back(slot);
    hosts.push_back(std::move(host));
  }
  return hosts;
}

/// The first hosts with their first slots; nothing where there are not so many.
std::optional<std::string> cut_include(const std::string& filter, const GroupShape& shape) {
  std::vector<IncludedHost> hosts = included_hosts(filter);
  const auto num_nodes = static_cast<std::size_t>(shape.num_nodes);
  const auto num_gpus = static_cast<std::size_t>(shape.num_gpus);
  std::set<std::string> names;
  std::string cut;
  if (hosts.size() < num_nodes) return std::nullopt;
  hosts.resize(num_nodes);
  for (IncludedHost& host : hosts) {
    if (!names.insert(host.name).second) return std::nullopt;
    for (std::size_t slot = 0; host.slots.size() < num_gpus && slot == host.slots.size(); ++slot)
      host.slots.push_back(std::to_string(slot));
    if (host.slots.size() < num_gpus) return std::nullopt;
    host.slots.resize(num_gpus);
    cut += fmt::format("{}{}:{}", cut.empty() ? "" : "@", host.name, fmt::join(host.slots, ","));
  }
  return cut;
}

}  // namespace

std::string plan_deepspeed(const LauncherChain& chain, const LaunchRequest& request,
                           WordEdits& edits) {
  const GivenOptions& options = chain.options;
  const GroupShape& shape = request.shape;
  if (request.hostfile && options.find("--hostfile") == nullptr)
    edits.push_back({options.begin, false, {"--hostfile", *request.hostfile}});
  if (options.find("--exclude") != nullptr)
    return "it does not say which devices are left by --exclude: write --include, or --num_nodes "
           "and --num_gpus";
  if (std::string problem = variable_problem(options, {"--num_nodes", "--num_gpus", "--include"});
      !problem.empty())
    return problem;
  if (const GivenOption* include = options.find("--include")) {
    const std::optional<std::string> cut = cut_include(include->value, shape);
    if (!cut)
      return fmt::format("--include {} has not {} nodes with {} devices each: add them to it",
                         include->value, shape.num_nodes, shape.num_gpus);
    set_option(options, "--include", *cut, edits);
    return "";
  }
  set_or_add_option(options, "--num_nodes", std::to_string(shape.num_nodes), edits);
  set_or_add_option(options, "--num_gpus", std::to_string(shape.num_gpus), edits);
  return "";
}

LaunchCounts deepspeed_counts(const LauncherChain& chain) {
  const GivenOptions& options = chain.options;
  LaunchCounts counts{
      chain.name, count_of(options.find("--num_nodes")), count_of(options.find("--num_gpus")), {}};
  if (options.find("--exclude") != nullptr) return {chain.name, {}, {}, {}};
  if (const GivenOption* include = options.find("--include")) {
    const std::vector<IncludedHost> hosts = included_hosts(include->value);
    counts.num_nodes = static_cast<int>(hosts.size());
    counts.num_gpus.reset();
    std::set<std::size_t> sizes;
    for (const IncludedHost& host : hosts) sizes.insert(host.slots.size());
    if (sizes.size() == 1 && *sizes.begin() > 0) counts.num_gpus = static_cast<int>(*sizes.begin());
    return counts;
  }
  // The launcher knows this host alone where no file names others.
  std::error_code ignored;
  const bool has_hosts =
      options.find("--hostfile") != nullptr || std::filesystem::exists("/job/hostfile", ignored);
  if (!counts.num_nodes && !has_hosts) counts.num_nodes = 1;
  return counts;
}

}  // namespace dstune
