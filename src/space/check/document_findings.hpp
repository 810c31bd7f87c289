#pragma once
/// Findings on a space's keys beside what DeepSpeed refuses. Local.

#include <functional>
#include <string>
#include <vector>

#include "dstune/space/config_findings.hpp"
#include "sections/products.hpp"

namespace dstune {

/// Tries members of one product: with the first and the last candidates of its dimensions, at each
/// stage.
class Trials {
 public:
  Trials(const JobSpec& job, const Product& product);

  using Judge = std::function<std::vector<Violation>(const Settings&)>;
  /// A judge's words on every member tried; `dimension` and `index`: with this candidate.
  [[nodiscard]] std::vector<Violation> common(const Judge& judge, const Dimension* dimension,
                                              std::size_t index) const;
  /// The violations of every member tried.
  [[nodiscard]] std::vector<Violation> common(const Dimension* dimension = nullptr,
                                              std::size_t index = 0) const;

 private:
  const JobSpec* job_;
  const Dimension* stages_ = nullptr;
  Settings base_, last_;  ///< with each dimension's first and last candidate
};

/// Adds unknown, mistyped and misplaced keys, keys without an effect, and those that act in
/// DeepSpeed otherwise than is measured here.
void add_key_findings(const JobSpec& job, const std::vector<Product>& products,
                      ConfigFindings& findings);

/// The keys of the config that change nothing that is measured, and stay in the answer.
[[nodiscard]] std::vector<std::string> inert_keys(const JobSpec& job);

/// Adds keys that are not written and that releases of DeepSpeed take for different values.
void add_changed_defaults(const JobSpec& job, int zero_stage, ConfigFindings& findings);

/// A problem of a value of the job's document, not located: its pointer is the document's.
[[nodiscard]] Problem problem_at(const JobSpec& job, const std::string& pointer,
                                 std::string message);

/// The place of a key that is unknown where it stands: "into zero_optimization", "at the top
/// level"; empty: no one place has such a key.
[[nodiscard]] std::string home_of(const KnobTable& table, const std::string& pointer);

}  // namespace dstune
