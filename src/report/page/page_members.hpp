#pragma once
/// The members of a space as the page's data has them: a row each, the front, and runs over time.
/// Local.

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dstune/base/hash.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/text_pool.hpp"
#include "dstune/ranking/answer.hpp"

namespace dstune {

using PageTime = std::chrono::system_clock::time_point;

/// Seconds to a microsecond, as clocks tell them.
[[nodiscard]] double page_seconds(double seconds);
/// Seconds from the beginning of the page's time; null where that, or the moment, is not known.
[[nodiscard]] json::Value seconds_on_page(PageTime moment, const std::optional<PageTime>& began);

/// The beginning of the page's time: the job's, or that of an earlier job's first run which this
/// one knows. Nothing where nobody says it.
[[nodiscard]] std::optional<PageTime> beginning_of(const Answer& answer, PageTime job_began);

/// Texts that many members share, each once.
class PageTexts {
 public:
  /// Its number; null for an empty one.
  json::Value number_of(const std::string& text);
  /// Visits them by their numbers.
  void visit(const std::function<void(std::string_view)>& visitor) const;

 private:
  TextPool pool_;
  std::vector<TextPool::Place> places_;
  std::unordered_map<Digest, std::size_t, DigestHash> numbers_;
};

/// Adds `keys`, `common_config`, `columns` and `members`, which stays empty: each of its rows goes
/// to `take`. Returns the texts that rows have by their numbers.
PageTexts add_members(const Answer& answer, const std::optional<PageTime>& began, json::Value& data,
                      const std::function<void(json::Value&& row)>& take);
/// The statuses that rows have by their numbers.
[[nodiscard]] json::Value statuses_json(const Answer& answer);
/// Adds `memory_categories` and `memory_of`: the measured memory of the best members.
void add_measured_memory(const Answer& answer, json::Value& data);
/// Adds `front`.
void add_front(const Answer& answer, json::Value& data);
/// Adds `runs`: the last ones, repeats among them.
void add_runs(const Answer& answer, const std::optional<PageTime>& began, json::Value& data);

}  // namespace dstune
