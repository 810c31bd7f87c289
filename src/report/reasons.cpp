#include <cctype>
#include <map>

#include "row.hpp"

namespace dstune {

namespace {

/// The reason with every number replaced: members that fail for the same cause with other figures
/// belong together.
std::string without_numbers(const std::string& reason) {
  std::string out;
  for (const char letter : reason) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(letter)) != 0;
    if (!is_digit)
      out += letter;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

/// Groups of one status, in the order of their first member.
std::vector<ReasonGroup> group_reasons(const Report& report, const std::string& status) {
  std::vector<ReasonGroup> groups;
  std::map<std::string, std::size_t> index_of;
  constexpr std::size_t most_names = 3;
  for (const Row& row : report.rows) {
    if (status_text(row) != status) continue;
    const auto [found, is_new] = index_of.emplace(without_numbers(reason_text(row)), groups.size());
    if (is_new) groups.push_back({status, reason_text(row), 0, {}});
    ReasonGroup& group = groups[found->second];
    ++group.count;
    if (group.first_names.size() < most_names)
      group.first_names.push_back(row.planned.experiment.name);
  }
  return groups;
}

}  // namespace

std::vector<ReasonGroup> reason_groups(const Report& report) {
  std::vector<ReasonGroup> groups;
  for (const StatusCount& one : count_statuses(report)) {
    if (one.status == to_text(Status::ok) || one.count == 0) continue;
    for (ReasonGroup& group : group_reasons(report, one.status)) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace dstune
