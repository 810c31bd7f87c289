#include "check/check_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "check/gpu_findings.hpp"
#include "dstune/base/archive.hpp"
#include "dstune/base/text.hpp"
#include "dstune/device/device_peaks.hpp"

namespace dstune {
namespace {

/// More rows tell a reader nothing: then a row is a host's.
constexpr std::size_t max_rows = 32;
constexpr const char* indent = "  ";

using Cells = std::vector<std::string>;

/// Columns as wide as their widest text; numbers to the right.
std::string table_of(const Cells& head, const std::vector<Cells>& rows, std::size_t num_texts) {
  std::vector<std::size_t> widths;
  for (const std::string& name : head) widths.push_back(name.size());
  for (const Cells& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  const auto add = [&](const Cells& row) {
    std::string line = indent;
    for (std::size_t column = 0; column < row.size(); ++column) {
      line += column < num_texts ? fmt::format("{:<{}}", row[column], widths[column])
                                 : fmt::format("{:>{}}", row[column], widths[column]);
      line += indent;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(head);
  std::ranges::for_each(rows, add);
  return text;
}

/// "1.23 T", "98.4 G": three digits, powers of 1000.
std::string with_prefix(double value) {
  if (!(value > 0)) return "-";
  const auto [scale, letter] = value >= 1e12 ? std::pair(1e12, 'T') : std::pair(1e9, 'G');
  const double shown = value / scale;
  return fmt::format("{:.{}f} {}", shown, shown >= 100 ? 0 : shown >= 10 ? 1 : 2, letter);
}

std::string percent_text(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

/// The slowest of the ranks in one row.
template <class Member>
double least_of(const std::vector<const RankReport*>& ranks, Member member) {
  double least = (*ranks.front()).*member;
  for (const RankReport* const each : ranks) least = std::min(least, (*each).*member);
  return least;
}

std::string share_text(const std::vector<const RankReport*>& ranks) {
  std::optional<double> least;
  for (const RankReport* const each : ranks)
    if (each->processor_share)
      least = std::min(least.value_or(*each->processor_share), *each->processor_share);
  return least ? percent_text(*least) : "-";
}

std::string ranks_text(const std::vector<RankReport>& reports) {
  std::vector<std::vector<const RankReport*>> rows;
  const bool by_host = reports.size() > max_rows;
  std::map<int, std::size_t> row_of_node;
  for (const RankReport& report : reports) {
    const auto [found, is_new] = row_of_node.try_emplace(report.node, rows.size());
    if (!by_host || is_new)
      rows.push_back({&report});
    else
      rows[found->second].push_back(&report);
  }
  std::vector<Cells> cells;
  for (const auto& ranks : rows) {
    const RankReport& first = *ranks.front();
    const double bf16 = least_of(ranks, &RankReport::bf16_flops);
    const double memory = least_of(ranks, &RankReport::memory_bytes);
    const auto peaks = peaks_of(first.device);
    cells.push_back(
        {by_host ? fmt::format("{} ({} ranks)", first.rank, ranks.size())
                 : std::to_string(first.rank),
         first.host, std::to_string(first.threads),
         first.processors.empty() ? "-" : first.processors,
         with_prefix(least_of(ranks, &RankReport::f32_flops)),
         with_prefix(bf16) + (peaks ? fmt::format(" ({})", percent_text(bf16 / peaks->flops)) : ""),
         with_prefix(memory) +
             (peaks ? fmt::format(" ({})", percent_text(memory / peaks->memory_bytes)) : ""),
         share_text(ranks)});
  }
  return fmt::format("Ranks, all at once{}\n",
                     by_host ? ": each host's first rank, with the rates of its slowest one" : "") +
         table_of({"rank", "host", "threads", "processors", "fp32 FLOP/s", "bf16 FLOP/s",
                   "memory B/s", "had of its processors"},
                  cells, 2);
}

constexpr const char* not_known = "not known";

std::string flag_text(const std::optional<bool>& flag, const char* set, const char* unset) {
  return !flag ? not_known : *flag ? set : unset;
}

std::string number_text(const std::optional<int>& number) {
  return number ? std::to_string(*number) : "?";
}

/// "1980/1980", or that it is not known.
std::string of_highest(const std::optional<int>& now, const std::optional<int>& highest) {
  if (!now && !highest) return not_known;
  return fmt::format("{}/{}", number_text(now), number_text(highest));
}

std::string gpus_text(const std::vector<RankReport>& reports) {
  std::vector<Cells> cells;
  std::set<std::string> versions;
  for (const RankReport& report : reports) {
    if (!report.gpu) continue;
    const GpuFacts& gpu = *report.gpu;
    if (gpu.runtime_cuda)
      versions.insert(
          fmt::format("CUDA: the driver supports {}, this program has {}\n",
                      gpu.driver_cuda ? cuda_version_text(*gpu.driver_cuda) : "an unknown version",
                      cuda_version_text(*gpu.runtime_cuda)));
    if (gpu.uuid.empty()) continue;
    const auto reached = std::ranges::count_if(gpu.peers, [](const auto& p) { return p.second; });
    cells.push_back(
        {std::to_string(report.rank), report.host, gpu.compute_mode.value_or(not_known),
         flag_text(gpu.is_instance.value_or(false) ? gpu.is_instance : gpu.has_mig, "on", "off"),
         gpu.has_mps ? "on" : "off", flag_text(gpu.has_ecc, "on", "off"),
         gpu.uncorrected_errors ? std::to_string(*gpu.uncorrected_errors) : not_known,
         of_highest(gpu.sm_clock_mhz, gpu.max_sm_clock_mhz),
         of_highest(gpu.memory_clock_mhz, gpu.max_memory_clock_mhz),
         of_highest(gpu.pcie_generation, gpu.max_pcie_generation),
         of_highest(gpu.pcie_width, gpu.max_pcie_width),
         gpu.nvlinks ? std::to_string(*gpu.nvlinks) : not_known,
         gpu.peers.empty() ? "-" : fmt::format("{}/{}", reached, gpu.peers.size())});
  }
  std::string text;
  for (const std::string& version : versions) text += "\n" + version;
  if (cells.empty()) return text;
  const bool has_more = cells.size() > max_rows;
  if (has_more) cells.resize(max_rows);
  return text +
         fmt::format("\nGPUs, as the driver tells: now/highest{}\n",
                     has_more ? fmt::format(", of the first {} ranks", max_rows) : "") +
         table_of({"rank", "host", "compute mode", "MIG", "MPS", "ECC", "errors", "SM MHz",
                   "memory MHz", "PCIe", "lanes", "NVLinks", "peers"},
                  cells, 6);
}

/// Rates by size, the slowest of groups of equal kind.
std::string group_text(const std::vector<RankReport>& reports, bool across) {
  std::map<std::int64_t, CollectiveRates> least;
  std::set<int> nodes;
  const GroupRates* first = nullptr;
  for (const RankReport& report : reports)
    for (const GroupRates& group : report.groups) {
      if ((group.num_nodes > 1) != across) continue;
      if (first == nullptr) first = &group;
      nodes.insert(report.node);
      for (const CollectiveRates& rate : group.rates) {
        CollectiveRates& all = least.try_emplace(rate.bytes, rate).first->second;
        all.all_reduce = std::min(all.all_reduce, rate.all_reduce);
        all.all_gather = std::min(all.all_gather, rate.all_gather);
        all.reduce_scatter = std::min(all.reduce_scatter, rate.reduce_scatter);
      }
    }
  if (first == nullptr || least.empty()) return "";
  std::vector<Cells> rows;
  for (const auto& [bytes, rate] : least)
    rows.push_back({format_bytes(bytes), with_prefix(rate.all_reduce), with_prefix(rate.all_gather),
                    with_prefix(rate.reduce_scatter)});
  const std::string who =
      across ? fmt::format("{} ranks on {} hosts", first->num_ranks, first->num_nodes)
             : fmt::format("the ranks of a host{}", nodes.size() > 1 ? ", all hosts at once" : "");
  return fmt::format("\nCollectives of {}, by {}: bus bandwidth, B/s\n", who, first->transport) +
         table_of({"size", "all-reduce", "all-gather", "reduce-scatter"}, rows, 0);
}

std::string list_text(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format("\n{}\n", title);
  constexpr std::size_t most = 20;
  for (std::size_t i = 0; i < std::min(most, lines.size()); ++i) text += "- " + lines[i] + "\n";
  if (lines.size() > most)
    text += fmt::format("- and {} more (--format json has all)\n", lines.size() - most);
  return text;
}

}  // namespace

std::string check_text(const std::vector<RankReport>& reports, const Findings& findings) {
  std::string text;
  if (!reports.empty()) {
    const RankReport& first = reports.front();
    std::set<std::string> devices;
    for (const RankReport& report : reports) devices.insert(report.device);
    devices.erase("");
    if (!devices.empty()) text += fmt::format("Devices: {}\n", fmt::join(devices, "; "));
    for (const auto& [name, version] : first.libraries)
      text += fmt::format("{}: {}\n", name, version);
    text +=
        fmt::format("Memory of {}: {}, of which {} are free; {} are free in /dev/shm\n\n",
                    first.host, format_bytes(first.host_memory_bytes),
                    format_bytes(first.available_bytes), format_bytes(first.shared_memory_bytes));
    const auto is_measured = [](const RankReport& report) { return report.f32_flops > 0; };
    if (std::ranges::any_of(reports, is_measured)) text += ranks_text(reports);
    text += gpus_text(reports);
    text += group_text(reports, false);
    text += group_text(reports, true);
    const auto is_recorded = [](const RankReport& report) { return report.recording.has_value(); };
    if (std::ranges::any_of(reports, is_recorded) && findings.failures.empty())
      text += "\nA product and a collective are replayed as a graph on every rank.\n";
  }
  text += list_text("Does not work:", findings.failures);
  text += list_text("Slow:", findings.slow);
  text += list_text("Worth a look:", findings.notes);
  if (findings.failures.empty() && findings.slow.empty())
    text += "\nEverything works, and no rank is slower than those like it.\n";
  return text;
}

json::Value check_json(const std::vector<RankReport>& reports, const Findings& findings,
                       ExitCode code) {
  json::Value ranks = json::Value::array();
  for (const RankReport& report : reports) ranks.push_back(json::write(report));
  return {{"ranks", std::move(ranks)},
          {"failures", findings.failures},
          {"slow", findings.slow},
          {"notes", findings.notes},
          {"exit_code", static_cast<int>(code)}};
}

}  // namespace dstune
