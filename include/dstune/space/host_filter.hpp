#pragma once
/// --include and --exclude in DeepSpeed's syntax, NAME[:SLOT[,SLOT…]][@NAME…], and what they and a
/// hostfile leave of a job. All functions: Local.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/space/hostfile.hpp"

namespace dstune {

/// What is written. A host that is named twice has the slots of both; as in DeepSpeed, one that is
/// named with slots and without has these slots only.
struct HostFilter {
  struct Item {
    std::string name;
    std::vector<int> slots;  ///< ascending, each once; empty: all of the host
    bool operator==(const Item&) const = default;
  };
  bool is_exclude = false;
  std::vector<Item> items;  ///< each host once, in the order of the text; at least one

  /// "--include" or "--exclude"
  [[nodiscard]] const char* option() const { return is_exclude ? "--exclude" : "--include"; }
};

/// Throws UsageError with the mend.
HostFilter parse_host_filter(std::string_view text, bool is_exclude);

/// A host and those of its slots that may be used.
struct HostSlots {
  std::string name;
  std::vector<int> slots;  ///< ascending, each once
  int line = 0;            ///< in the hostfile; 0 where there is none
  bool operator==(const HostSlots&) const = default;
};

/// The slots that a filter leaves of each of `hosts`, of some perhaps none. A filter's names are
/// looked up as HostNames does. `where` is said in messages ("hosts.txt", "the job"). Throws
/// UsageError: an unknown or ambiguous host, a slot that it lacks, nothing left at all.
std::vector<HostSlots> filter_hosts(std::vector<HostSlots> hosts, const HostFilter& filter,
                                    const std::string& where);

/// The hosts that ranks run on, numbered by their lowest rank.
struct JobHosts {
  std::vector<std::string> names;
  std::vector<std::vector<int>> ranks_of_node;  ///< world ranks, ascending: slot k is the k-th
};

/// The cluster of a hostfile as a job that fills it: ranks 0, 1, … in the order of the file.
JobHosts job_of(const Hostfile& file);

/// The world ranks of each host that may train, ascending; hosts that have none are left out. Hosts
/// are matched by name as HostNames does; "localhost" is the host of rank 0. Throws InputError
/// where the file names hosts or slots that the job does not have, UsageError for the filter.
std::vector<std::vector<int>> select_ranks(const JobHosts& job, const std::optional<Hostfile>& file,
                                           const std::optional<HostFilter>& filter);

}  // namespace dstune
