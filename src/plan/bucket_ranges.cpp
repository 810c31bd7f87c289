#include "bucket_ranges.hpp"

namespace dstune::plan {

std::vector<BucketRange> cut_into_buckets(const Layout& layout, std::int64_t bucket_elements) {
  std::vector<BucketRange> ranges;
  const auto close = [&](int first, int last) {
    const Parameter& end = layout.parameter(last - 1);
    BucketRange range{first, last, layout.parameter(first).offset, end.offset + end.elements(),
                      0,     false};
    range.alone = range.end - range.begin > bucket_elements;
    if (layout.stage() == 3) range.shards = layout.shard_offset(last) - layout.shard_offset(first);
    ranges.push_back(range);
  };
  int last = layout.num_parameters();
  std::int64_t elements = 0;
  for (int index = last - 1; index >= 0; --index) {
    const std::int64_t arriving = layout.parameter(index).elements();
    if (elements > 0 && elements + arriving > bucket_elements) {
      close(index + 1, last);
      last = index + 1;
      elements = 0;
    }
    elements += arriving;
  }
  close(0, last);
  return ranges;
}

}  // namespace dstune::plan
