#pragma once
/// The members of a space as the page's data has them: a row each, the front, and runs over time.
/// Local.

#include <chrono>
#include <cstddef>
#include <optional>

#include "dstune/base/json.hpp"
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

/// Adds `keys`, `common_config`, `columns`, `members`, `statuses` and `texts`.
void add_members(const Answer& answer, const std::optional<PageTime>& began, json::Value& data);
/// Adds `memory_categories` and `memory_of`: the measured memory of the best members.
void add_measured_memory(const Answer& answer, json::Value& data);
/// Adds `front`.
void add_front(const Answer& answer, json::Value& data);
/// Adds `runs`: the last ones, repeats among them.
void add_runs(const Answer& answer, const std::optional<PageTime>& began, json::Value& data);

}  // namespace dstune
