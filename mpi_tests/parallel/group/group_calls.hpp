#pragma once

#include <functional>
#include <vector>

#include "random_elements.hpp"

namespace dstune::test {

/// One collective of a group: what a call leaves behind, in-place memory and all.
using Call = std::function<std::vector<std::byte>(ProcessGroup&, const std::function<void()>&)>;

inline std::vector<std::byte> both(const Elements& a, const Elements& b) {
  std::vector<std::byte> bytes = a.bytes;
  bytes.insert(bytes.end(), b.bytes.begin(), b.bytes.end());
  return bytes;
}

/// Every verb on every range, in and out of place. The second argument of each says that the
/// results are needed.
inline std::vector<Call> calls_of(const ProcessGroup& group, std::int64_t count, DType type) {
  std::vector<Call> calls;
  calls.push_back([=](ProcessGroup& g, const auto& finish) {
    Elements data = random_elements(g.group_rank(), count, type);
    g.all_reduce_sum(data.bytes.data(), count, type);
    finish();
    return data.bytes;
  });
  for (int root = 0; root < group.size(); ++root) {
    calls.push_back([=](ProcessGroup& g, const auto& finish) {
      Elements data = random_elements(g.group_rank(), count, type);
      g.reduce_average(data.bytes.data(), count, type, root);
      finish();
      return data.bytes;
    });
  }
  std::vector<RankRange> ranges = parts_of(group);
  ranges.emplace_back();
  for (const RankRange& among : ranges) {
    const int ranks = among.size(group.size());
    const int own = among.in_group_of(group.size()).index_of(group.group_rank());
    calls.push_back([=](ProcessGroup& g, const auto& finish) {
      Elements data = random_elements(g.group_rank(), count, type);
      g.all_reduce_average(data.bytes.data(), count, type, among);
      finish();
      return data.bytes;
    });
    for (const bool in_place : {false, true}) {
      calls.push_back([=](ProcessGroup& g, const auto& finish) {
        Elements in = random_elements(g.group_rank(), ranks * count, type);
        Elements out(type, count);
        g.reduce_scatter_average(in_place ? in.at(own * count) : out.bytes.data(), in.bytes.data(),
                                 count, type, among);
        finish();
        return both(in, out);
      });
      calls.push_back([=](ProcessGroup& g, const auto& finish) {
        Elements out = random_elements(g.group_rank(), ranks * count, type);
        Elements in = random_elements(g.group_rank() + 10, count, type);
        g.all_gather(out.bytes.data(), in_place ? out.at(own * count) : in.bytes.data(), count,
                     type, among);
        finish();
        return both(in, out);
      });
    }
    calls.push_back([=](ProcessGroup& g, const auto& finish) {
      Elements in = random_elements(g.group_rank(), ranks * count, type);
      Elements out(type, ranks * count);
      g.all_to_all(out.bytes.data(), in.bytes.data(), count, type, among);
      finish();
      return both(in, out);
    });
  }
  return calls;
}

}  // namespace dstune::test
