#pragma once
/// Findings on a DeepSpeed config, as they are told by a plan, by a job and by `dstune-mpi check
/// FILE`, all from here. Local.

#include <cstdint>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

enum class FindingKind : std::uint8_t {
  refused,          ///< DeepSpeed's config refuses it
  contradiction,    ///< values that do not go together: batch sizes, the Trainer's arguments
  mistyped,         ///< a key that is nearly a known one, which DeepSpeed would drop in silence
  fails,            ///< DeepSpeed's config takes it, and the training fails
  misplaced,        ///< a key that has an effect elsewhere
  unknown,          ///< a key that DeepSpeed drops in silence
  unchecked,        ///< a value of a wrong type, which DeepSpeed takes without a look
  no_effect,        ///< a key that does nothing in this config
  caution,          ///< DeepSpeed does something else than its documentation says
  not_built,        ///< DeepSpeed runs it, the built-in step refuses it
  not_followed,     ///< it acts in DeepSpeed, and the built-in step goes on without it
  changed_default,  ///< a key that is not written, whose default depends on the release
};
[[nodiscard]] const EnumTexts& texts_of(FindingKind);

/// error: exit code 3. warning: it is taken. note: nothing need be done.
enum class Severity : std::uint8_t { error, warning, note };
[[nodiscard]] const EnumTexts& texts_of(Severity);
[[nodiscard]] Severity severity_of(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::refused;
  Problem problem;
  /// One candidate of several is meant: members without it are left.
  bool has_alternatives = false;
  bool operator==(const Finding&) const = default;
};
/// A candidate that can not be taken is a warning where others are left.
[[nodiscard]] Severity severity_of(const Finding& finding);

/// In the order in which they were found, none twice.
class ConfigFindings {
 public:
  void add(FindingKind kind, Problem problem, bool has_alternatives = false);
  [[nodiscard]] const std::vector<Finding>& all() const { return all_; }
  /// Tells whether anything was found that DeepSpeed refuses, or that is an error to us.
  [[nodiscard]] bool has_errors() const;
  /// Drops what follows from another finding: effects and defaults of a key that has a problem.
  void drop_consequences();
  /// In the order of their lines, errors of a line first.
  void sort();

 private:
  std::vector<Finding> all_;
};

}  // namespace dstune
