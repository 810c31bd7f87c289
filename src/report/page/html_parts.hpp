#pragma once
/// The figures and longer sections of report.html: SVG inside the page, without fonts, scripts or
/// files of its own. Colours are the page's CSS classes s0 … s3 by ZeRO stage. Empty where there is
/// nothing to show. Local.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/ranking/answer.hpp"

namespace dstune {

/// Text for HTML and SVG, in elements and in quoted attributes.
std::string html_escaped(std::string_view text);

/// The best value of each ZeRO stage at each micro-batch size, a line a stage.
std::string value_plot(const Answer& answer);

/// A point of predicted against measured.
struct PredictedPoint {
  double predicted = 0;
  double measured = 0;
  int stage = 0;
  std::string name;
};
/// `unit`: what both axes count. A dashed line is where they are equal.
std::string prediction_plot(const std::vector<PredictedPoint>& points, const std::string& unit);

/// What ran on which rank when, a row a rank; the last `timeline_limit` runs, repeats among them.
inline constexpr std::size_t timeline_limit = 500;
std::string timeline_plot(const Answer& answer);

/// A figure of value against memory, a line for each number of GPUs through those that nothing
/// beats, and these as a table; a sentence where one has it all. Empty where nothing has a value.
std::string front_section(const Answer& answer);

/// What the figures are made of, in a picture 640 units wide.
namespace plot {

inline constexpr double width = 640;
inline constexpr double left = 70;
inline constexpr double right = 16;

/// Round numbers for an axis from 0 that holds `most`: about five of them.
std::vector<double> ticks_up_to(double most);

/// Values from 0 on a stretch of the picture; `to` may be the smaller one.
struct Scale {
  double most = 1;
  double from = 0;
  double to = 1;
  [[nodiscard]] double at(double value) const { return from + (to - from) * value / most; }
};

std::string text_at(double x, double y, const char* anchor, const std::string& text);
std::string line(double x1, double y1, double x2, double y2, const char* style);
std::string open_svg(double height, const std::string& title);
/// A vertical axis with its grid.
std::string value_axis(const Scale& scale, const std::vector<double>& ticks);
/// A shape a stage, so that colour is not all that tells them apart.
std::string marker(int stage, double x, double y, const std::string& title);
std::string legend(const std::set<int>& stages, double y);

}  // namespace plot

}  // namespace dstune
