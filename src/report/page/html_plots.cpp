#include "page/html_plots.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "page/plot_parts.hpp"
#include "row.hpp"

namespace dstune {

using namespace plot;

namespace {

/// A run with its times, a first one or another.
struct TimedRun {
  const Experiment* experiment;
  const Measurement* measurement;
  std::chrono::system_clock::time_point started_at, finished_at;
};

std::vector<TimedRun> runs_of(const Report& report) {
  std::vector<TimedRun> runs;
  for (const Row& row : report.rows) {
    if (!row.record) continue;
    const auto add = [&](const auto& run) {
      if (!run.measurement.world_ranks.empty())
        runs.push_back(
            {&row.record->experiment, &run.measurement, run.started_at, run.finished_at});
    };
    add(*row.record);
    for (const Repeat& repeat : row.repeats) add(repeat);
  }
  return runs;
}

double seconds_since(std::chrono::system_clock::time_point time,
                     std::chrono::system_clock::time_point start) {
  return std::chrono::duration<double>(time - start).count();
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

std::string value_plot(const Report& report) {
  std::map<int, std::map<std::int64_t, const Row*>> best;
  std::set<std::int64_t> sizes;
  double most = 0;
  for (const Row& row : report.rows) {
    const auto value = ranked_value(report, row);
    if (!value || !std::isfinite(value->value)) continue;
    const TrainingConfig& config = row.planned.experiment.config;
    const Row*& known = best[config.zero_stage][config.micro_batch];
    if (known == nullptr || is_better(report, row, *known)) known = &row;
    sizes.insert(config.micro_batch);
    most = std::max(most, value->value);
  }
  if (best.empty()) return "";
  constexpr double height = 300;
  const std::vector<double> ticks = ticks_up_to(most);
  const Scale y{ticks.back(), height - 48, 30};
  // Sizes stand side by side at equal distances, whatever lies between them.
  std::map<std::int64_t, double> x_of;
  const double step = (width - right - left) / static_cast<double>(sizes.size());
  for (const std::int64_t size : sizes)
    x_of.emplace(size, left + step * (static_cast<double>(x_of.size()) + 0.5));
  std::string out = open_svg(
      height, fmt::format("{} by micro-batch size and ZeRO stage", to_text(report.metric)));
  out += value_axis(y, ticks);
  // Not more labels than have room.
  const std::size_t every = sizes.size() / 16 + 1;
  std::size_t place = 0;
  for (const auto& [size, x] : x_of)
    if (place++ % every == 0) out += text_at(x, height - 28, "middle", std::to_string(size));
  out += text_at((left + width) / 2, height - 8, "middle", "micro-batch size of a rank");
  std::set<int> stages;
  for (const auto& [stage, rows] : best) {
    stages.insert(stage);
    std::string points;
    std::string markers;
    for (const auto& [size, row] : rows) {
      const double value = ranked_value(report, *row)->value;
      points += fmt::format("{:.1f},{:.1f} ", x_of[size], y.at(value));
      markers += marker(stage, x_of[size], y.at(value),
                        fmt::format("{}: {} {}", row->planned.experiment.name, format_number(value),
                                    unit_text(report.metric)));
    }
    out += fmt::format("<polyline points=\"{}\" class=\"l{}\"/>", points, stage) + markers;
  }
  return out + legend(stages, 14) + "</svg>";
}

std::string prediction_plot(const std::vector<PredictedPoint>& points, const std::string& unit) {
  if (points.empty()) return "";
  constexpr double height = 340;
  double most = 0;
  for (const PredictedPoint& point : points)
    most = std::max({most, point.predicted, point.measured});
  const std::vector<double> ticks = ticks_up_to(most);
  const Scale x{ticks.back(), left, width - right};
  const Scale y{ticks.back(), height - 48, 30};
  std::string out = open_svg(height, fmt::format("measured against predicted, {}", unit));
  out += value_axis(y, ticks);
  for (const double tick : ticks)
    out += text_at(x.at(tick), height - 28, "middle", format_number(tick));
  out += text_at((left + width) / 2, height - 8, "middle", fmt::format("predicted, {}", unit));
  out += line(x.at(0), y.at(0), x.at(ticks.back()), y.at(ticks.back()), "equal");
  std::set<int> stages;
  for (const PredictedPoint& point : points) {
    stages.insert(point.stage);
    out += marker(point.stage, x.at(point.predicted), y.at(point.measured),
                  fmt::format("{}: predicted {}, measured {} {}", point.name,
                              format_number(point.predicted), format_number(point.measured), unit));
  }
  return out + legend(stages, 14) + "</svg>";
}

std::string timeline_plot(const Report& report) {
  std::vector<TimedRun> runs = runs_of(report);
  if (runs.empty()) return "";
  std::sort(runs.begin(), runs.end(), [](const TimedRun& one, const TimedRun& other) {
    return one.started_at < other.started_at;
  });
  if (runs.size() > timeline_limit)
    runs.erase(runs.begin(), runs.end() - static_cast<std::ptrdiff_t>(timeline_limit));
  const auto start = runs.front().started_at;
  double end_s = 0;
  std::map<int, std::size_t> row_of;
  for (const TimedRun& run : runs) {
    end_s = std::max(end_s, seconds_since(run.finished_at, start));
    for (const int rank : run.measurement->world_ranks) row_of[rank] = 0;
  }
  std::size_t next_row = 0;
  for (auto& [rank, row] : row_of) row = next_row++;
  // Many ranks share the height that there is.
  const double row_height = std::clamp(600 / static_cast<double>(next_row), 2.0, 22.0);
  const double top = 30;
  const double bottom = top + row_height * static_cast<double>(next_row);
  const std::vector<double> ticks = ticks_up_to(end_s);
  const Scale x{ticks.back(), left, width - right};
  std::string out = open_svg(bottom + 40, "experiments on ranks over time");
  for (const double tick : ticks) {
    out += line(x.at(tick), top, x.at(tick), bottom, "grid");
    out += text_at(x.at(tick), bottom + 16, "middle", format_number(tick));
  }
  out += text_at((left + width) / 2, bottom + 34, "middle", "seconds since the first one shown");
  const std::size_t every = next_row / 24 + 1;
  for (const auto& [rank, row] : row_of)
    if (row % every == 0)
      out += text_at(left - 6, top + row_height * (static_cast<double>(row) + 0.5) + 4, "end",
                     fmt::format("rank {}", rank));
  std::set<int> stages;
  for (const TimedRun& run : runs) {
    const int stage = run.experiment->config.zero_stage;
    stages.insert(stage);
    const double begin = x.at(seconds_since(run.started_at, start));
    const double end = x.at(seconds_since(run.finished_at, start));
    const Status status = run.measurement->status;
    const bool is_ok = status == Status::ok || status == Status::raced_out;
    for (const int rank : run.measurement->world_ranks)
      out += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
          "class=\"s{}{}\"><title>{}: {}, {:.3g} s</title></rect>",
          begin, top + row_height * static_cast<double>(row_of[rank]) + 0.5,
          std::max(0.5, end - begin - 0.5), std::max(1.0, row_height - 1.5), stage,
          is_ok ? "" : " bad", html_escaped(run.experiment->name), to_text(status),
          seconds_since(run.finished_at, run.started_at));
  }
  return out + legend(stages, 14) + "</svg>";
}

}  // namespace dstune
