#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "page/html_parts.hpp"

namespace dstune {

namespace {

/// Round numbers for an axis from 0 that holds `most`: about five of them.
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

/// Values from 0 on a stretch of the picture; `to` may be the smaller one.
struct Scale {
  double most = 1;
  double from = 0;
  double to = 1;
  [[nodiscard]] double at(double value) const { return from + (to - from) * value / most; }
};

/// A configuration in a picture.
struct PlotPoint {
  double x = 0;
  double y = 0;
  int stage = 0;
  std::string title;
};

/// A shape a stage, so that colour is not all that tells them apart.
std::string marker(const PlotPoint& point) {
  const auto& [x, y, stage, title] = point;
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

/// A picture 640 units wide.
class Plot {
 public:
  static constexpr double width = 640;
  static constexpr double left = 70;
  static constexpr double right = 16;

  Plot(double height, const std::string& title)
      : height_(height),
        svg_(fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">",
                         width, height, html_escaped(title))) {}

  /// The picture, with a legend of its stages.
  [[nodiscard]] std::string finish() {
    double x = left + 10;
    for (const int stage : stages_) {
      const std::string name = fmt::format("ZeRO {}", stage);
      add(marker({x, 14, stage, name}));
      add_text(x + 12, 18, "start", name);
      x += 90;
    }
    return svg_ + "</svg>";
  }

  void add(const std::string& svg) { svg_ += svg; }
  void add_stage(int stage) { stages_.insert(stage); }

  void add_text(double x, double y, const char* anchor, const std::string& text) {
    add(fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                    html_escaped(text)));
  }

  void add_line(double x1, double y1, double x2, double y2, const char* style) {
    add(fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>",
                    x1, y1, x2, y2, style));
  }

  /// The vertical axis, with its grid.
  Scale add_value_axis(double most) {
    const std::vector<double> ticks = ticks_up_to(most);
    const Scale scale{ticks.back(), height_ - 48, 30};
    for (const double tick : ticks) {
      const double y = scale.at(tick);
      add_line(left, y, width - right, y, "grid");
      add_text(left - 6, y + 4, "end", format_number(tick));
    }
    return scale;
  }

  /// The horizontal axis.
  Scale add_axis(double most, const std::string& title) {
    const std::vector<double> ticks = ticks_up_to(most);
    const Scale scale{ticks.back(), left, width - right};
    for (const double tick : ticks) add_label(scale.at(tick), format_number(tick));
    add_title(title);
    return scale;
  }

  /// Below the horizontal axis.
  void add_label(double x, const std::string& text) { add_text(x, height_ - 28, "middle", text); }
  void add_title(const std::string& text) {
    add_text((left + width) / 2, height_ - 8, "middle", text);
  }

  void add_point(const PlotPoint& point) {
    add_stage(point.stage);
    add(marker(point));
  }

  /// A line, and over it the points that it goes through.
  void add_points(const std::vector<PlotPoint>& points, const std::string& style) {
    std::string places;
    for (const PlotPoint& point : points) places += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
    add(fmt::format("<polyline points=\"{}\" class=\"{}\"/>", places, style));
    for (const PlotPoint& point : points) add_point(point);
  }

 private:
  double height_;
  std::string svg_;
  std::set<int> stages_;
};

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

std::string html_escaped(std::string_view text, std::string_view letters) {
  constexpr std::array<std::string_view, html_letters.size()> entities = {"&amp;", "&lt;", "&gt;",
                                                                          "&quot;", "&#39;"};
  std::string out;
  for (const char letter : text) {
    if (letters.find(letter) == letters.npos)
      out += letter;
    else
      out += entities[html_letters.find(letter)];
  }
  return out;
}

std::string value_plot(const Answer& answer) {
  if (answer.best_of_sizes.empty()) return "";
  std::map<int, std::vector<const BestOfSize*>> best;
  std::map<std::int64_t, double> x_of;
  for (const BestOfSize& one : answer.best_of_sizes) {
    best[one.stage].push_back(&one);
    x_of[one.micro_batch] = 0;
  }
  double most = 0;
  for (const Standing& standing : answer.standings)
    if (standing.ranked && std::isfinite(standing.ranked->value))
      most = std::max(most, standing.ranked->value);
  Plot plot(300, fmt::format("{} by micro-batch size and ZeRO stage", to_text(answer.metric)));
  const Scale y = plot.add_value_axis(most);
  // Sizes stand side by side at equal distances, whatever lies between them.
  const double step = (Plot::width - Plot::right - Plot::left) / static_cast<double>(x_of.size());
  // Not more labels than have room.
  const std::size_t every = x_of.size() / 16 + 1;
  std::size_t place = 0;
  for (auto& [size, x] : x_of) {
    x = Plot::left + step * (static_cast<double>(place) + 0.5);
    if (place++ % every == 0) plot.add_label(x, std::to_string(size));
  }
  plot.add_title("micro-batch size of a rank");
  for (const auto& [stage, of_stage] : best) {
    std::vector<PlotPoint> points;
    for (const BestOfSize* const one : of_stage) {
      const Standing& standing = answer.standings[one->member];
      const double value = standing.ranked->value;
      points.push_back({x_of[one->micro_batch], y.at(value), stage,
                        fmt::format("{}: {} {}", standing.row->planned.experiment.name,
                                    format_number(value), unit_text(answer.metric))});
    }
    plot.add_points(points, fmt::format("l{}", stage));
  }
  return plot.finish();
}

std::string front_plot(const Answer& answer) {
  /// More points hide each other.
  constexpr std::size_t max_beaten_shown = 1000;
  double most_value = 0;
  double max_bytes = 0;
  for (const Offer& offer : answer.offers) {
    most_value = std::max(most_value, offer.value);
    max_bytes = std::max(max_bytes, static_cast<double>(offer.memory_bytes));
  }
  const bool is_large = max_bytes >= 4 * 0x1p30;
  const double unit_bytes = is_large ? 0x1p30 : 0x1p20;
  Plot plot(340, fmt::format("{} against memory, by number of GPUs", to_text(answer.metric)));
  const Scale y = plot.add_value_axis(most_value);
  const Scale x =
      plot.add_axis(max_bytes / unit_bytes,
                    fmt::format("memory of the fullest rank, {}", is_large ? "GiB" : "MiB"));
  const auto x_of = [&](const Offer& offer) {
    return x.at(static_cast<double>(offer.memory_bytes) / unit_bytes);
  };
  std::map<int, std::vector<const Offer*>> front;
  std::size_t beaten = 0;
  for (const Offer& offer : answer.offers) {
    if (offer.is_on_front) front[offer.num_gpus].push_back(&offer);
    if (offer.is_on_front || beaten++ >= max_beaten_shown) continue;
    plot.add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" class=\"beaten\"/>",
                         x_of(offer), y.at(offer.value)));
  }
  for (auto& [num_gpus, of_size] : front) {
    const std::string gpus = format_count(num_gpus, "GPU");
    std::sort(of_size.begin(), of_size.end(), [](const Offer* one, const Offer* other) {
      return one->memory_bytes < other->memory_bytes;
    });
    std::vector<PlotPoint> points;
    for (const Offer* offer : of_size) {
      const Experiment& experiment = answer.standings[offer->member].row->planned.experiment;
      points.push_back(
          {x_of(*offer), y.at(offer->value), experiment.config.zero_stage,
           fmt::format("{}: {} {}, {} a rank, {}", experiment.name, format_number(offer->value),
                       unit_text(answer.metric), format_bytes(offer->memory_bytes), gpus)});
    }
    plot.add_points(points, "front");
    const PlotPoint& last = points.back();
    const bool is_at_edge = last.x > Plot::width - Plot::right - 60;
    plot.add_text(last.x + (is_at_edge ? -10 : 10), last.y - 8, is_at_edge ? "end" : "start", gpus);
  }
  return plot.finish();
}

std::string prediction_plot(const std::vector<PredictedPoint>& points, const std::string& unit) {
  if (points.empty()) return "";
  double most = 0;
  for (const PredictedPoint& point : points)
    most = std::max({most, point.predicted, point.measured});
  Plot plot(340, fmt::format("measured against predicted, {}", unit));
  const Scale y = plot.add_value_axis(most);
  const Scale x = plot.add_axis(most, fmt::format("predicted, {}", unit));
  plot.add_line(x.at(0), y.at(0), x.at(x.most), y.at(y.most), "equal");
  for (const PredictedPoint& point : points)
    plot.add_point(
        {x.at(point.predicted), y.at(point.measured), point.stage,
         fmt::format("{}: predicted {}, measured {} {}", point.name, format_number(point.predicted),
                     format_number(point.measured), unit)});
  return plot.finish();
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
  const Scale x{ticks.back(), Plot::left, Plot::width - Plot::right};
  Plot plot(bottom + 40, "experiments on ranks over time");
  for (const double tick : ticks) {
    plot.add_line(x.at(tick), top, x.at(tick), bottom, "grid");
    plot.add_text(x.at(tick), bottom + 16, "middle", format_number(tick));
  }
  plot.add_text((Plot::left + Plot::width) / 2, bottom + 34, "middle",
                "seconds since the first one shown");
  const std::size_t every = next_row / 24 + 1;
  for (const auto& [rank, row] : row_of)
    if (row % every == 0)
      plot.add_text(Plot::left - 6, top + row_height * (static_cast<double>(row) + 0.5) + 4, "end",
                    fmt::format("rank {}", rank));
  for (const TimedRun& run : runs) {
    const int stage = run.experiment->config.zero_stage;
    plot.add_stage(stage);
    const double begin = x.at(seconds_since(run.started_at, start));
    const double end = x.at(seconds_since(run.finished_at, start));
    const Status status = run.measurement->status;
    const bool is_ok = status == Status::ok || status == Status::raced_out;
    for (const int rank : run.measurement->world_ranks)
      plot.add(
          fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
                      "class=\"s{}{}\"><title>{}: {}, {:.3g} s</title></rect>",
                      begin, top + row_height * static_cast<double>(row_of[rank]) + 0.5,
                      std::max(0.5, end - begin - 0.5), std::max(1.0, row_height - 1.5), stage,
                      is_ok ? "" : " bad", html_escaped(run.experiment->name), to_text(status),
                      seconds_since(run.finished_at, run.started_at)));
  }
  return plot.finish();
}

}  // namespace dstune
