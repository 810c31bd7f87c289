#pragma once
/// How reduce_bucket_size cuts the parameters: as DeepSpeed, whole parameters in the order in which
/// their gradients are handed over, a parameter larger than a bucket alone.

#include <vector>

#include "zero/layout.hpp"

namespace dstune::plan {

struct BucketRange {
  int first, last;          ///< parameters [first, last) of the table
  std::int64_t begin, end;  ///< in the flat order
  std::int64_t shards;      ///< stage 3: elements of a rank's shards of them
  bool alone;               ///< one parameter larger than the bucket
  /// Stage 3: each rank gets its shards of the average, not the whole of it.
  bool is_scattered = false;
};

/// Backward finishes gradients from the end of the table to its beginning; stage 1 hands them over
/// from the beginning where it waits for the end of backward.
enum class Arrival { from_the_end, from_the_beginning };

/// In order of arrival.
std::vector<BucketRange> cut_into_buckets(const Layout& layout, std::int64_t bucket_elements,
                                          Arrival arrival = Arrival::from_the_end);

}  // namespace dstune::plan
