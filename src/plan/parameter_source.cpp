#include "parameter_source.hpp"

#include "dstune/base/error.hpp"

namespace dstune::plan {

ParameterSource::ParameterSource(Emitter& emitter, const Layout& layout, TensorId parameters)
    : emitter_(emitter), layout_(layout), parameters_(parameters) {
  if (layout.stage() == 3)
    slabs_.assign(static_cast<std::size_t>(layout.table().num_units()), no_tensor);
}

void ParameterSource::fetch(int unit) {
  if (slabs_.empty()) return;
  const auto [first, last] = layout_.table().unit_range(unit);
  const std::int64_t shards = layout_.shard_offset(last) - layout_.shard_offset(first);
  const DType type = emitter_.type();
  const TensorId interleaved = emitter_.acquire("gathered shards", unit - 1, Category::gathered,
                                                type, shards * layout_.group_size());
  emitter_.emit(
      op::AllGather{at(interleaved), at(parameters_, layout_.shard_offset(first)), shards});
  const TensorId slab = emitter_.acquire("gathered parameters", unit - 1, Category::gathered, type,
                                         layout_.table().unit_elements(unit));
  emitter_.emit(op::Reshard{at(slab), at(interleaved), false, shards,
                            layout_.pieces(first, last, first, first)});
  emitter_.release(interleaved);
  slabs_[static_cast<std::size_t>(unit)] = slab;
}

void ParameterSource::release(int unit) {
  if (slabs_.empty()) return;
  emitter_.release(slabs_[static_cast<std::size_t>(unit)]);
  slabs_[static_cast<std::size_t>(unit)] = no_tensor;
}

View ParameterSource::view(int unit, ParameterRole role) const {
  const int index = layout_.table().find(unit, role);
  if (index < 0) return {};
  const std::int64_t offset = layout_.parameter(index).offset;
  if (slabs_.empty()) return at(parameters_, offset);
  const TensorId slab = slabs_[static_cast<std::size_t>(unit)];
  require(slab != no_tensor, "parameters are fetched before they are used");
  return at(slab, offset - layout_.parameter(layout_.table().unit_range(unit).first).offset);
}

}  // namespace dstune::plan
