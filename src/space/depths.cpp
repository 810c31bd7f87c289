#include <algorithm>
#include <array>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "sections/products.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

/// The order in which lists grow: what decides whether a member fits, then its sizes, then the
/// rest. Of batches and numbers the two ends come first.
enum class Turn { memory, micro_batch, batch, words, numbers };

Turn turn_of(const Dimension& dimension) {
  switch (dimension.kind) {
    case Kind::shape:
    case Kind::recompute:
      return Turn::memory;
    case Kind::micro_batch:
      return Turn::micro_batch;
    case Kind::accumulation_steps:
    case Kind::train_batch_size:
      return Turn::batch;
    case Kind::knob:
      break;
  }
  constexpr std::array<std::string_view, 4> of_memory = {"stage", "device", "ratio", "enabled"};
  const std::string_view pointer = dimension.pointer;
  const bool decides =
      std::ranges::find(of_memory, pointer.substr(pointer.rfind('/') + 1)) != of_memory.end();
  // Whole sections are those of offloading.
  const auto has = [&](auto&& test) { return std::ranges::any_of(dimension.candidates, test); };
  if (decides || has([](const json::Value& one) { return one.is_object(); })) return Turn::memory;
  return has([](const json::Value& one) { return one.is_number(); }) ? Turn::numbers : Turn::words;
}

/// The candidates behind the first: the last, then the middle of each gap, the wide gaps first.
std::vector<std::size_t> from_the_ends(std::size_t count) {
  if (count < 2) return {};
  std::vector<std::size_t> order = {count - 1};
  std::deque<std::pair<std::size_t, std::size_t>> gaps = {{0, count - 1}};
  for (; !gaps.empty(); gaps.pop_front()) {
    const auto [low, high] = gaps.front();
    if (high - low < 2) continue;
    const std::size_t middle = low + (high - low) / 2;
    order.push_back(middle);
    gaps.emplace_back(low, middle);
    gaps.emplace_back(middle, high);
  }
  return order;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> depths_of(const Product& product) {
  const std::size_t count = product.dimensions.size();
  std::vector<std::vector<std::size_t>> waiting(count);
  std::vector<std::vector<std::uint32_t>> depths(count);
  std::vector<std::size_t> order;
  for (std::size_t index = 0; index < count; ++index) {
    const std::size_t candidates = product.dimensions[index].candidates.size();
    waiting[index] = from_the_ends(candidates);
    depths[index].assign(candidates, 0);
    order.push_back(index);
  }
  const auto turn = [&](std::size_t index) { return turn_of(product.dimensions[index]); };
  std::ranges::stable_sort(order, {}, turn);
  std::uint32_t depth = 0;
  std::vector<std::size_t> joined(count, 0);
  for (bool has_more = true; has_more;) {
    has_more = false;
    for (const std::size_t index : order) {
      const std::vector<std::size_t>& list = waiting[index];
      const bool is_by_turns = turn(index) == Turn::batch || turn(index) == Turn::numbers;
      const std::size_t last = is_by_turns ? std::min(joined[index] + 1, list.size()) : list.size();
      for (; joined[index] < last; ++joined[index]) depths[index][list[joined[index]]] = ++depth;
      has_more = has_more || last < list.size();
    }
  }
  return depths;
}

}  // namespace dstune
