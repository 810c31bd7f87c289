#include "draws.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace dstune {
namespace {

constexpr std::size_t num_layers = 128;
/// The lowest layer ends here; behind it is the tail. Each layer has this area.
constexpr double tail_begin = 3.442619855899, layer_area = 9.91256303526217e-3;

struct Ziggurat {
  std::array<double, num_layers + 1> ends{};
  std::array<double, num_layers> inside{};  ///< the share of a layer that needs no second look

  Ziggurat() {
    const auto density = [](double x) { return std::exp(-x * x / 2); };
    ends[0] = layer_area / density(tail_begin);
    ends[1] = tail_begin;
    for (std::size_t layer = 2; layer < num_layers; ++layer)
      ends[layer] =
          std::sqrt(-2 * std::log(layer_area / ends[layer - 1] + density(ends[layer - 1])));
    for (std::size_t layer = 0; layer < num_layers; ++layer)
      inside[layer] = ends[layer + 1] / ends[layer];
  }
};

const Ziggurat ziggurat;

}  // namespace

double Draws::normal_beyond(bool is_negative) {
  double x = 0, y = 0;
  do {
    x = std::log(1 - uniform()) / tail_begin;
    y = std::log(1 - uniform());
  } while (-2 * y < x * x);
  return is_negative ? x - tail_begin : tail_begin - x;
}

double Draws::normal() {
  for (;;) {
    const std::uint64_t bits = bits_();
    const std::size_t layer = bits % num_layers;
    const double place = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
    if (std::abs(place) < ziggurat.inside[layer]) return place * ziggurat.ends[layer];
    if (layer == 0) return normal_beyond(place < 0);
    const double x = place * ziggurat.ends[layer];
    const auto density = [&](double end) { return std::exp((x * x - end * end) / 2); };
    const double low = density(ziggurat.ends[layer]), high = density(ziggurat.ends[layer + 1]);
    if (high + uniform() * (low - high) < 1) return x;
  }
}

double Draws::gamma(double shape) {
  const double most = shape - 1.0 / 3, width = 1 / std::sqrt(9 * most);
  for (;;) {
    const double x = normal();
    const double root = 1 + width * x;
    if (root <= 0) continue;
    const double cube = root * root * root, height = 1 - uniform();
    // Nearly all pass without a logarithm.
    if (height < 1 - 0.0331 * x * x * x * x ||
        std::log(height) < x * x / 2 + most * (1 - cube + std::log(cube)))
      return most * cube;
  }
}

std::size_t Draws::one_of(std::span<double> log_weights) {
  const double most = *std::ranges::max_element(log_weights);
  double sum = 0;
  for (double& each : log_weights) sum += each = std::exp(each - most);
  double left = sum * uniform();
  for (std::size_t each = 0; each + 1 < log_weights.size(); ++each)
    if ((left -= log_weights[each]) < 0) return each;
  return log_weights.size() - 1;
}

}  // namespace dstune
