#pragma once
/// The figures of report.html: SVG inside the page, without fonts, scripts or files of its own.
/// Colours are the page's CSS classes s0 … s3 by ZeRO stage. Empty where there is nothing to show.
/// Local.

#include <string>
#include <string_view>
#include <vector>

#include "dstune/ranking/answer.hpp"

namespace dstune {

inline constexpr std::string_view html_letters = "&<>\"'";
/// Text for HTML and SVG, in elements and in quoted attributes: entities for these letters.
std::string html_escaped(std::string_view text, std::string_view letters = html_letters);

/// The best value of each ZeRO stage at each micro-batch size, a line a stage.
std::string value_plot(const Answer& answer);

/// Value against memory, a line for each number of GPUs through those that nothing beats.
std::string front_plot(const Answer& answer);

/// A point of predicted against measured.
struct PredictedPoint {
  double predicted = 0;
  double measured = 0;
  int stage = 0;
  std::string name;
};
/// `unit`: what both axes count. A dashed line is where they are equal.
std::string prediction_plot(const std::vector<PredictedPoint>& points, const std::string& unit);

/// The runs on each rank over time, a row a rank; the last `timeline_limit` runs, repeats among
/// them.
inline constexpr std::size_t timeline_limit = 500;
std::string timeline_plot(const Answer& answer);

}  // namespace dstune
