#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "page/html_parts.hpp"

namespace dstune {

namespace plot {

std::vector<double> ticks_up_to(double most) {
  if (most <= 0 || !std::isfinite(most)) most = 1;
  const double rough = most / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power < rough) continue;
    step = factor * power;
    break;
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < most) ticks.push_back(ticks.back() + step);
  return ticks;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     html_escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>",
                     x1, y1, x2, y2, style);
}

std::string open_svg(double height, const std::string& title) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", width,
                     height, html_escaped(title));
}

std::string value_axis(const Scale& scale, const std::vector<double>& ticks) {
  std::string out;
  for (const double tick : ticks) {
    const double y = scale.at(tick);
    out += line(left, y, width - right, y, "grid");
    out += text_at(left - 6, y + 4, "end", format_number(tick));
  }
  return out;
}

std::string marker(int stage, double x, double y, const std::string& title) {
  const std::string head =
      fmt::format("class=\"s{}\"><title>{}</title>", stage, html_escaped(title));
  switch (stage) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" {}</circle>", x, y, head);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"9\" height=\"9\" {}</rect>",
                         x - 4.5, y - 4.5, head);
    case 2:
      return fmt::format("<path d=\"M{0:.1f} {2:.1f}L{1:.1f} {3:.1f}H{4:.1f}Z\" {5}</path>", x,
                         x + 6, y - 6, y + 5, x - 6, head);
    default:
      return fmt::format(
          "<path d=\"M{0:.1f} {2:.1f}L{1:.1f} {3:.1f}L{0:.1f} {4:.1f}L{5:.1f} "
          "{3:.1f}Z\" {6}</path>",
          x, x + 6, y - 6, y, y + 6, x - 6, head);
  }
}

std::string legend(const std::set<int>& stages, double y) {
  std::string out;
  double x = left + 10;
  for (const int stage : stages) {
    const std::string name = fmt::format("ZeRO {}", stage);
    out += marker(stage, x, y, name) + text_at(x + 12, y + 4, "start", name);
    x += 90;
  }
  return out;
}

}  // namespace plot

using namespace plot;

namespace {

/// A run with its times, a first one or another.
struct TimedRun {
  const Experiment* experiment;
  const Measurement* measurement;
  std::chrono::system_clock::time_point started_at, finished_at;
};

std::vector<TimedRun> runs_of(const Answer& answer) {
  std::vector<TimedRun> runs;
  for (const Standing& standing : answer.standings) {
    const Row& row = *standing.row;
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

std::string value_plot(const Answer& answer) {
  if (answer.best_of_sizes.empty()) return "";
  std::map<int, std::vector<const BestOfSize*>> best;
  std::set<std::int64_t> sizes;
  for (const BestOfSize& one : answer.best_of_sizes) {
    best[one.stage].push_back(&one);
    sizes.insert(one.micro_batch);
  }
  double most = 0;
  for (const Standing& standing : answer.standings)
    if (standing.ranked && std::isfinite(standing.ranked->value))
      most = std::max(most, standing.ranked->value);
  constexpr double height = 300;
  const std::vector<double> ticks = ticks_up_to(most);
  const Scale y{ticks.back(), height - 48, 30};
  // Sizes stand side by side at equal distances, whatever lies between them.
  std::map<std::int64_t, double> x_of;
  const double step = (width - right - left) / static_cast<double>(sizes.size());
  for (const std::int64_t size : sizes)
    x_of.emplace(size, left + step * (static_cast<double>(x_of.size()) + 0.5));
  std::string out = open_svg(
      height, fmt::format("{} by micro-batch size and ZeRO stage", to_text(answer.metric)));
  out += value_axis(y, ticks);
  // Not more labels than have room.
  const std::size_t every = sizes.size() / 16 + 1;
  std::size_t place = 0;
  for (const auto& [size, x] : x_of)
    if (place++ % every == 0) out += text_at(x, height - 28, "middle", std::to_string(size));
  out += text_at((left + width) / 2, height - 8, "middle", "micro-batch size of a rank");
  std::set<int> stages;
  for (const auto& [stage, of_stage] : best) {
    stages.insert(stage);
    std::string points;
    std::string markers;
    for (const BestOfSize* const one : of_stage) {
      const Standing& standing = answer.standings[one->row];
      const double x = x_of[one->micro_batch];
      const double value = standing.ranked->value;
      points += fmt::format("{:.1f},{:.1f} ", x, y.at(value));
      markers += marker(stage, x, y.at(value),
                        fmt::format("{}: {} {}", standing.row->planned.experiment.name,
                                    format_number(value), unit_text(answer.metric)));
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

std::string timeline_plot(const Answer& answer) {
  std::vector<TimedRun> runs = runs_of(answer);
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
