#include "dstune/space/config_findings.hpp"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "dstune/core/keys.hpp"

namespace dstune {

namespace {

constexpr EnumText kinds[] = {
    enum_text(FindingKind::refused, "refused"),
    enum_text(FindingKind::contradiction, "contradiction"),
    enum_text(FindingKind::mistyped, "mistyped"),
    enum_text(FindingKind::fails, "fails"),
    enum_text(FindingKind::misplaced, "misplaced"),
    enum_text(FindingKind::unknown, "unknown"),
    enum_text(FindingKind::unchecked, "unchecked"),
    enum_text(FindingKind::no_effect, "no_effect"),
    enum_text(FindingKind::caution, "caution"),
    enum_text(FindingKind::not_built, "not_built"),
    enum_text(FindingKind::not_followed, "not_followed"),
    enum_text(FindingKind::changed_default, "changed_default"),
};
constexpr EnumText severities[] = {enum_text(Severity::error, "error"),
                                   enum_text(Severity::warning, "warning"),
                                   enum_text(Severity::note, "note")};

bool is_any_of(FindingKind kind, std::initializer_list<FindingKind> kinds_of) {
  return std::ranges::find(kinds_of, kind) != kinds_of.end();
}

/// Tells whether nothing need be said of one finding beside another.
bool follows(const Finding& one, const Finding& other) {
  using enum FindingKind;
  const std::string& pointer = one.problem.pointer;
  const std::string& place = other.problem.pointer;
  const bool is_same = pointer == place;
  switch (one.kind) {
    case no_effect:
      return is_any_of(other.kind, {refused, fails}) &&
             (is_same || place.starts_with(pointer + "/"));
    case caution:
      return is_same && other.kind == no_effect;
    case not_followed:
      return is_same && is_any_of(other.kind, {refused, fails, unchecked});
    case changed_default: {
      // The key stands elsewhere, or is misspelled.
      const std::string name(last_key(pointer));
      return is_any_of(other.kind, {mistyped, misplaced, unknown}) &&
             (last_key(place) == name ||
              other.problem.message.find("\"" + name + "\"") != std::string::npos);
    }
    default:
      return false;
  }
}

}  // namespace

const EnumTexts& texts_of(FindingKind) {
  static const EnumTexts texts{kinds};
  return texts;
}

const EnumTexts& texts_of(Severity) {
  static const EnumTexts texts{severities};
  return texts;
}

Severity severity_of(FindingKind kind) {
  switch (kind) {
    case FindingKind::refused:
    case FindingKind::contradiction:
    case FindingKind::mistyped:
      return Severity::error;
    case FindingKind::not_built:
    case FindingKind::not_followed:
    case FindingKind::changed_default:
      return Severity::note;
    default:
      return Severity::warning;
  }
}

Severity severity_of(const Finding& finding) {
  const Severity severity = severity_of(finding.kind);
  return finding.has_alternatives ? std::max(severity, Severity::warning) : severity;
}

void ConfigFindings::add(FindingKind kind, Problem problem, bool has_alternatives) {
  Finding finding{kind, std::move(problem), has_alternatives};
  if (std::ranges::find(all_, finding) == all_.end()) all_.push_back(std::move(finding));
}

bool ConfigFindings::has_errors() const {
  return std::ranges::any_of(
      all_, [](const Finding& one) { return severity_of(one) == Severity::error; });
}

void ConfigFindings::drop_consequences() {
  std::vector<Finding> causes;
  for (const Finding& one : all_)
    if (std::ranges::none_of(all_, [&](const Finding& other) { return follows(one, other); }))
      causes.push_back(one);
  all_ = std::move(causes);
}

void ConfigFindings::sort() {
  std::ranges::stable_sort(
      all_, {}, [](const Finding& one) { return std::tuple(one.problem.line, severity_of(one)); });
}

}  // namespace dstune
