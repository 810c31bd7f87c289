#pragma once
/// Hostfiles, as DeepSpeed, Open MPI, MPICH (Hydra) and PBS write them: docs/hosts.md has the forms
/// and what each of these programs does with them. All functions: Local.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/error.hpp"

namespace dstune {

/// More slots than any MPI job has ranks.
inline constexpr int most_slots = 1 << 20;

struct HostEntry {
  std::string name;   ///< as written, without a user before it
  int num_slots = 1;  ///< at least 1
  int line = 0;       ///< where it is named first, 1-based
  bool operator==(const HostEntry&) const = default;
};

/// At least one host, each once, in the order of the file; at most most_slots slots in all.
struct Hostfile {
  std::string path;  ///< for messages
  std::vector<HostEntry> hosts;
};

/// Throws InputError with every problem, its line and its mend.
Hostfile parse_hostfile(std::string_view text, const std::string& path);
/// The same of a file; one that can not be read is an InputError, too.
Hostfile read_hostfile(const std::string& path);

/// Whether this is an IPv4 or IPv6 address: such a name has no short form.
bool is_address(std::string_view host);

/// The names of some hosts, to find one by what somebody else calls it.
class HostNames {
 public:
  explicit HostNames(const std::vector<std::string>& names);
  /// Which of them a host is: every one that is equal to it, or, where none is, every one that is
  /// equal up to the first dot (of addresses: none). Indices, ascending; several where the name is
  /// ambiguous.
  [[nodiscard]] std::vector<std::size_t> find(std::string_view host) const;

 private:
  using Index = std::map<std::string, std::vector<std::size_t>, std::less<>>;
  Index whole_;
  Index short_;
};

/// What a message says of text that somebody else wrote: printable, in quotes, not long.
std::string quoted(std::string_view text);
/// "a, b and 3 more"
std::string listed(const std::vector<std::string>& names);

}  // namespace dstune
