#pragma once
/// How reduce_bucket_size cuts the parameters: as DeepSpeed, whole parameters in the order in which
/// backward finishes them, a parameter larger than a bucket alone.

#include <vector>

#include "layout.hpp"

namespace dstune::plan {

struct BucketRange {
  int first, last;          ///< parameters [first, last) of the table
  std::int64_t begin, end;  ///< in the flat order
  std::int64_t shards;      ///< stage 3: elements of a rank's shards of them
  bool alone;               ///< one parameter larger than the bucket
};

/// In order of arrival: from the end of the table to its beginning.
std::vector<BucketRange> cut_into_buckets(const Layout& layout, std::int64_t bucket_elements);

}  // namespace dstune::plan
