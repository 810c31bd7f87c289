#pragma once
/// The hosts of a job. Hostfiles, as DeepSpeed, Open MPI, MPICH (Hydra) and PBS write them
/// (docs/hosts.md has the forms); --include and --exclude in DeepSpeed's syntax,
/// NAME[:SLOT[,SLOT…]][@NAME…]; and what they leave of a job. All functions: Local.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/error.hpp"

namespace dstune {

/// More slots than any MPI job has ranks.
inline constexpr int max_slots = 1 << 20;

struct HostEntry {
  std::string name;   ///< as written, without a user before it
  int num_slots = 1;  ///< at least 1
  int line = 0;       ///< where it is named first, 1-based
  bool operator==(const HostEntry&) const = default;
};

/// At least one host, each once, in the order of the file; at most max_slots slots in all.
struct Hostfile {
  std::string path;  ///< for messages
  std::vector<HostEntry> hosts;
};

/// Throws InputError with every problem, its line and a hint.
Hostfile parse_hostfile(std::string_view text, const std::string& path);
/// The same of a file; one that can not be read is an InputError, too.
Hostfile read_hostfile(const std::string& path);

/// The characters between words of a line.
inline constexpr std::string_view host_blanks = " \t\r\f\v";
/// Tells whether this can be a host's name or address.
[[nodiscard]] bool is_host_name(std::string_view text);
/// Tells whether this is an IPv4 or IPv6 address: such a name has no short form.
bool is_address(std::string_view host);

/// The names of some hosts, to find one by what somebody else calls it.
class HostNames {
 public:
  explicit HostNames(const std::vector<std::string>& names);
  /// Returns the entries that a host is: every one that is equal to it. If none is, every one that
  /// is equal up to the first dot; addresses have no such short form. Indices, ascending; several
  /// where the name is ambiguous.
  [[nodiscard]] std::vector<std::size_t> find(std::string_view host) const;

 private:
  using Index = std::map<std::string, std::vector<std::size_t>, std::less<>>;
  Index whole_;
  Index short_;
};

/// Returns the text of somebody else for a message: printable, in quotes, not long.
std::string quoted(std::string_view text);
/// "a, b and 3 more"
std::string listed(const std::vector<std::string>& names);

// --include and --exclude.

/// The items as written. A host that is named twice has the slots of both; as in DeepSpeed, one
/// that is named with slots and without has these slots only.
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

/// Throws UsageError with a hint.
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
