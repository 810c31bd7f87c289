#include "member_cursor.hpp"

namespace dstune {

MemberCursor::MemberCursor(const Product& product)
    : product_(&product), digits_(product.dimensions.size(), 0) {
  settings_.apply(product.settings);
  for (const auto& dimension : product.dimensions)
    if (dimension.kind == Dimension::Kind::knob) settings_.apply(dimension.settings.front());
}

bool MemberCursor::advance() {
  bool is_knob_changed = false;
  for (std::size_t index = digits_.size(); index-- > 0;) {
    const auto& dimension = product_->dimensions[index];
    const bool is_last = digits_[index] + 1 == dimension.candidates.size();
    const std::size_t next = is_last ? 0 : digits_[index] + 1;
    if (dimension.kind == Dimension::Kind::knob && next != digits_[index]) {
      settings_.apply(dimension.settings[next]);
      is_knob_changed = true;
    }
    digits_[index] = next;
    if (!is_last) break;
  }
  return is_knob_changed;
}

std::vector<std::uint64_t> strides_of(const Product& product) {
  const auto& dimensions = product.dimensions;
  std::vector<std::uint64_t> strides(dimensions.size(), 1);
  for (std::size_t index = dimensions.size(); index-- > 1;)
    strides[index - 1] = strides[index] * dimensions[index].candidates.size();
  return strides;
}

std::vector<std::size_t> digits_of(const Product& product, std::uint64_t number) {
  std::vector<std::size_t> digits(product.dimensions.size());
  for (std::size_t index = digits.size(); index-- > 0;) {
    const auto count = product.dimensions[index].candidates.size();
    digits[index] = static_cast<std::size_t>(number % count);
    number /= count;
  }
  return digits;
}

}  // namespace dstune
