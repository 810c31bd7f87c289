#pragma once
/// The data of report.html, which are report.json, too, and the page around them. docs/fields.md
/// has the fields. Nothing is decided here: all is the Answer's, or of the job around it. Local.

#include <optional>
#include <string>
#include <string_view>

#include "dstune/base/json.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/report/job_state.hpp"
#include "dstune/report/text_sink.hpp"

namespace dstune {

/// Facts of the recommended member that the Answer lacks.
struct AnswerOnPage {
  std::string command{};                   ///< that launches the user's training; empty: not known
  std::optional<MemoryTimeline> memory{};  ///< of a rank over a step, as planned
};

/// report.json. `environment`: environment.json, or nothing. Takes about 10 ms for a thousand
/// members, so that it can be written while a job runs.
[[nodiscard]] json::Value report_json(const Answer& answer, const json::Value& environment,
                                      const JobState& state, const AnswerOnPage& on_page = {});

/// The text of report.json, and report.html around the same data, piece by piece: members are made
/// once for both, and none is held.
void write_report(const Answer& answer, const json::Value& environment, const JobState& state,
                  const AnswerOnPage& on_page, const TextSink& to_json, const TextSink& to_html);

/// report.html: one file that needs nothing else, and draws `data`, the text of report.json.
[[nodiscard]] std::string report_html(std::string_view data);

}  // namespace dstune
