#pragma once
/// Why two members run alike, in words. Local.

#include "dstune/space/search_space.hpp"

namespace dstune {

/// "reduce_bucket_size has no effect at stage 0": what differs between the members of `product`
/// with these candidates, and why it makes no difference; "" where nothing differs.
std::string twin_reason(const Product& product, const std::vector<std::size_t>& digits,
                        const std::vector<std::size_t>& others, int zero_stage);

}  // namespace dstune
