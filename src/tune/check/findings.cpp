#include "check/findings.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "check/gpu_findings.hpp"
#include "dstune/base/text.hpp"

namespace dstune {
namespace {

/// A rank that takes so much longer than its like is named. Products and memory differ by a few
/// percent between equal processors, and by more where a clock is lowered.
constexpr double named_above = 1.25;
/// Links of equal nodes differ by more: whom they lead to counts, too.
constexpr double named_link_above = 1.5;
/// A rank that has less of its processors than that waits for somebody else.
constexpr double least_share = 0.8;
/// A part of a processor: a host does less beside a job.
constexpr double busy_at_least = 0.3;
/// A 64 MiB segment is what Docker gives; a window of ranks that share memory needs 2 MiB a rank.
constexpr std::int64_t least_shared_bytes = std::int64_t{64} << 20;

/// The upper one of the two in the middle: of two ranks the faster one is the measure.
double upper_middle(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::string place_of(const RankReport& report) {
  return fmt::format("rank {} ({})", report.rank, report.host);
}

/// "rank 0 (node1) and 3 more"
std::string places_of(const std::vector<const RankReport*>& ranks) {
  const std::string first = place_of(*ranks.front());
  return ranks.size() == 1 ? first : fmt::format("{} and {} more", first, ranks.size() - 1);
}

/// Ranks that are to be equally fast.
std::vector<std::vector<const RankReport*>> alike(const std::vector<RankReport>& reports) {
  std::map<std::tuple<std::string, int>, std::vector<const RankReport*>> kinds;
  for (const RankReport& report : reports)
    kinds[{report.device, report.threads}].push_back(&report);
  std::vector<std::vector<const RankReport*>> found;
  for (auto& [kind, members] : kinds) found.push_back(std::move(members));
  return found;
}

/// Says once what holds for many ranks.
class SaidOnce {
 public:
  void add(const std::string& text, const RankReport& report) {
    auto place = std::ranges::find(found_, text, [](const auto& one) { return one.first; });
    if (place == found_.end()) place = found_.insert(found_.end(), {text, {}});
    place->second.push_back(&report);
  }
  void move_to(std::vector<std::string>& texts) const {
    for (const auto& [text, ranks] : found_)
      texts.push_back(fmt::format("{}: {}", places_of(ranks), text));
  }

 private:
  std::vector<std::pair<std::string, std::vector<const RankReport*>>> found_;
};

class Looking {
 public:
  explicit Looking(const std::vector<RankReport>& reports) : reports_(reports) {}

  Findings look(const std::vector<std::string>& missing) {
    for (const std::string& one : missing)
      out_.failures.push_back(one + " did not answer: its node or its device hangs");
    name_failures();
    name_slow_ranks();
    name_slow_nodes();
    note_sharing();
    note_memory();
    note_libraries();
    note_gpus();
    return std::move(out_);
  }

 private:
  void name_failures() {
    SaidOnce found;
    for (const RankReport& report : reports_) {
      for (const std::string& failure : report.failures) found.add(failure, report);
      for (const std::string& failure : failures_of_gpu(report, reports_))
        found.add(failure, report);
      if (report.recording && !report.recording->empty())
        found.add("a product and a collective can not be replayed as a graph: " + *report.recording,
                  report);
    }
    found.move_to(out_.failures);
  }

  void note_gpus() {
    SaidOnce found;
    for (const RankReport& report : reports_)
      for (const std::string& note : notes_of_gpu(report, reports_)) found.add(note, report);
    found.move_to(out_.notes);
  }

  /// Returns why a rank may be slow, from what its host says; "" where nothing is found.
  [[nodiscard]] std::string reason_of(const RankReport& report) const {
    std::vector<std::string> reasons;
    if (report.processor_share && *report.processor_share < least_share)
      reasons.push_back(
          fmt::format("it had {:.0f} % of its processors", 100 * *report.processor_share));
    if (report.stolen_processors && *report.stolen_processors > busy_at_least)
      reasons.push_back(fmt::format("other virtual machines took {:.1f} processors of its host",
                                    *report.stolen_processors));
    if (const std::string throttled = throttled_by(report); !throttled.empty())
      reasons.push_back(fmt::format("its GPU lowers its clock ({})", throttled));
    if (const double others = others_on(report); others > busy_at_least)
      reasons.push_back(fmt::format("others compute on its host, on {:.1f} processors", others));
    return reasons.empty() ? "" : fmt::format(": {}", fmt::join(reasons, "; "));
  }

  /// Busy processors of its host that are no rank's.
  [[nodiscard]] double others_on(const RankReport& report) const {
    if (!report.busy_processors) return 0;
    double own = 0;
    for (const RankReport& each : reports_) {
      if (each.node != report.node) continue;
      if (!each.processor_share) return 0;
      own += *each.processor_share * each.threads;
    }
    return *report.busy_processors - own;
  }

  void name_slow_ranks() {
    for (const auto& kind : alike(reports_)) {
      std::vector<double> f32, bf16, memory;
      for (const RankReport* const each : kind) {
        f32.push_back(each->f32_flops);
        bf16.push_back(each->bf16_flops);
        memory.push_back(each->memory_bytes);
      }
      const double usual_f32 = upper_middle(f32), usual_bf16 = upper_middle(bf16),
                   usual_memory = upper_middle(memory);
      for (const RankReport* const each : kind)
        name_rank(*each, {usual_f32, usual_bf16, usual_memory});
    }
  }

  struct Usual {
    double f32, bf16, memory;
  };
  void name_rank(const RankReport& report, const Usual& usual) {
    // They take turns, and who had more of them is no matter of the rank.
    if (report.share_core) return;
    std::vector<std::string> ways;
    const auto compare = [&](const char* what, double own, double others) {
      if (own > 0 && others / own > named_above)
        ways.push_back(fmt::format("{} take {:.2f} times as long", what, others / own));
    };
    compare("products in fp32", report.f32_flops, usual.f32);
    compare("products in bf16", report.bf16_flops, usual.bf16);
    compare("reads and writes of memory", report.memory_bytes, usual.memory);
    const bool waits = report.processor_share && *report.processor_share < least_share;
    if (ways.empty() && !waits) return;
    std::string text = place_of(report) + " is slow";
    if (!ways.empty()) text += fmt::format(": {} as on ranks like it", fmt::join(ways, ", "));
    out_.slow.push_back(text + reason_of(report));
  }

  /// The collectives inside nodes of as many ranks are compared, at the largest size that all have
  /// measured.
  void name_slow_nodes() {
    std::map<int, std::vector<const RankReport*>> nodes;  // by the number of ranks of a node
    std::set<int> seen;
    for (const RankReport& report : reports_)
      for (const GroupRates& group : report.groups)
        if (group.num_nodes == 1 && !group.rates.empty() && seen.insert(report.node).second)
          nodes[group.num_ranks].push_back(&report);
    for (const auto& [num_ranks, leaders] : nodes) {
      std::vector<std::pair<const RankReport*, double>> rates;
      std::int64_t bytes = INT64_MAX;
      for (const RankReport* const leader : leaders)
        bytes = std::min(bytes, leader->groups.front().rates.back().bytes);
      std::vector<double> all;
      for (const RankReport* const leader : leaders)
        for (const CollectiveRates& rate : leader->groups.front().rates)
          if (rate.bytes == bytes) {
            rates.emplace_back(leader, rate.all_reduce);
            all.push_back(rate.all_reduce);
          }
      if (all.size() < 2) continue;
      const double usual = upper_middle(all);
      for (const auto& [leader, rate] : rates)
        if (rate > 0 && usual / rate > named_link_above)
          out_.slow.push_back(fmt::format(
              "host {} is slow: an all-reduce of {} inside it takes {:.2f} times as long as on "
              "hosts of as many ranks",
              leader->host, format_bytes(bytes), usual / rate));
    }
  }

  void note_sharing() {
    std::set<int> seen;
    for (const RankReport& report : reports_)
      if (report.share_core && seen.insert(report.node).second)
        out_.notes.push_back(
            fmt::format("host {} has more ranks or threads than processors for them: they take "
                        "turns, and times say little (start fewer ranks, or set OMP_NUM_THREADS)",
                        report.host));
  }

  void note_memory() {
    std::set<int> seen;
    for (const RankReport& report : reports_)
      if (report.shared_memory_bytes > 0 && report.shared_memory_bytes < least_shared_bytes &&
          seen.insert(report.node).second)
        out_.notes.push_back(
            fmt::format("host {} has {} left in /dev/shm, by which its ranks exchange data: raise "
                        "it (in containers: --shm-size)",
                        report.host, format_bytes(report.shared_memory_bytes)));
  }

  /// Ranks with different libraries have different times, and may not understand each other.
  void note_libraries() {
    std::set<std::string> names;
    for (const RankReport& report : reports_)
      for (const auto& [name, version] : report.libraries) names.insert(name);
    for (const std::string& name : names) {
      std::map<std::string, std::vector<const RankReport*>> versions;
      for (const RankReport& report : reports_) {
        const auto found = report.libraries.find(name);
        versions[found == report.libraries.end() ? "none" : found->second].push_back(&report);
      }
      if (versions.size() < 2) continue;
      std::vector<std::string> words;
      for (const auto& [version, ranks] : versions)
        words.push_back(fmt::format("{} on {}", version, places_of(ranks)));
      out_.notes.push_back(
          fmt::format("{} differs between ranks: {}", name, fmt::join(words, ", ")));
    }
  }

  const std::vector<RankReport>& reports_;
  Findings out_;
};

}  // namespace

Findings findings_of(const std::vector<RankReport>& reports,
                     const std::vector<std::string>& missing) {
  return Looking(reports).look(missing);
}

}  // namespace dstune
