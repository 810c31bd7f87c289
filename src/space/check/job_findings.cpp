/// Findings as a job takes them: what ends it, and what it warns of.

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "document_findings.hpp"

namespace dstune {

namespace {

bool ends_job(const JobSpec& job, const Finding& finding) {
  if (finding.has_alternatives) return false;
  const bool is_other_codes = job.takes_any_key();
  switch (finding.kind) {
    case FindingKind::refused:
    case FindingKind::fails:
      return !(is_other_codes && finding.problem.is_unknown_key);
    case FindingKind::contradiction:
    case FindingKind::mistyped:
      return true;
    case FindingKind::not_built:
      return !is_other_codes;
    default:
      return false;
  }
}

std::string warning_of(const JobSpec& job, const Finding& finding) {
  const auto& [file, pointer, line, message, is_unknown_key, is_late] = finding.problem;
  if (is_unknown_key)
    return fmt::format("{} is no key that DeepSpeed {} knows: it ignores the key", pointer,
                       to_text(job.deepspeed_version));
  switch (finding.kind) {
    case FindingKind::fails:
    case FindingKind::not_built:
      return fmt::format("{}: members with this candidate are not run: {}", pointer, message);
    case FindingKind::misplaced:
    case FindingKind::unknown:
      return fmt::format("{} {}", pointer, message);
    case FindingKind::caution:
      return fmt::format("{}: {}", dotted(pointer), message);
    default:
      return fmt::format("{}: {}", pointer, message);
  }
}

/// The key, or the section that it stands in, is said to have no effect.
bool is_said(const std::map<std::string, std::vector<std::string>>& without_effect,
             const std::string& name) {
  return std::ranges::any_of(without_effect, [&](const auto& said) {
    return std::ranges::any_of(said.second, [&](const std::string& idle) {
      return name == idle || name.starts_with(idle + ".");
    });
  });
}

}  // namespace

json::Problems problems_in(const JobSpec& job, const ConfigFindings& findings) {
  json::Problems problems;
  for (const Finding& finding : findings.all())
    if (ends_job(job, finding)) problems.add(finding.problem);
  return problems;
}

std::vector<std::string> warnings_in(const JobSpec& job, const ConfigFindings& findings) {
  std::vector<std::string> warnings, not_followed;
  std::map<std::string, std::vector<std::string>> without_effect;
  for (const Finding& finding : findings.all()) {
    if (ends_job(job, finding) || finding.kind == FindingKind::changed_default) continue;
    const std::string name = dotted(finding.problem.pointer);
    if (finding.kind == FindingKind::no_effect)
      without_effect[finding.problem.message].push_back(name);
    else if (finding.kind == FindingKind::not_followed)
      not_followed.push_back(name);
    else
      warnings.push_back(warning_of(job, finding));
  }
  for (const auto& [why, names] : without_effect)
    warnings.push_back(fmt::format("{}: {}", fmt::join(names, ", "), why));
  if (job.takes_any_key()) return warnings;
  if (!not_followed.empty())
    warnings.push_back(fmt::format(
        "these keys do not change the built-in step, so the search ignores them. They stay in the "
        "answer: {}",
        fmt::join(not_followed, ", ")));
  std::vector<std::string> inert = inert_keys(job);
  std::erase_if(inert, [&](const std::string& name) { return is_said(without_effect, name); });
  if (!inert.empty())
    warnings.push_back(fmt::format(
        "these keys do not change the speed. They stay in the answer: {}", fmt::join(inert, ", ")));
  return warnings;
}

}  // namespace dstune
