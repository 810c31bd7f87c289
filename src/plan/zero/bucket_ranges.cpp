#include "zero/bucket_ranges.hpp"

namespace dstune::plan {

std::vector<BucketRange> cut_into_buckets(const Layout& layout, std::int64_t bucket_elements,
                                          Arrival arrival) {
  const int count = layout.num_parameters();
  const bool from_the_end = arrival == Arrival::from_the_end;
  std::vector<BucketRange> ranges;
  // Of arrivals [begin, end).
  const auto close = [&](int begin, int end) {
    const int first = from_the_end ? count - end : begin;
    const int last = from_the_end ? count - begin : end;
    const Parameter& back = layout.parameter(last - 1);
    const std::int64_t from = layout.parameter(first).offset;
    const std::int64_t to = back.offset + back.elements();
    const std::int64_t shards =
        layout.stage() == 3 ? layout.shard_offset(last) - layout.shard_offset(first) : 0;
    ranges.push_back({first, last, from, to, shards, to - from > bucket_elements});
  };
  int begin = 0;
  std::int64_t elements = 0;
  for (int arrived = 0; arrived < count; ++arrived) {
    const int index = from_the_end ? count - 1 - arrived : arrived;
    const std::int64_t arriving = layout.parameter(index).elements();
    if (elements > 0 && elements + arriving > bucket_elements) {
      close(begin, arrived);
      begin = arrived;
      elements = 0;
    }
    elements += arriving;
  }
  close(begin, count);
  return ranges;
}

}  // namespace dstune::plan
