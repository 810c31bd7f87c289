#include "zero/gradient_sink.hpp"

namespace dstune::plan {

GradientSink::GradientSink(const ZeroContext& zero)
    : emitter_(zero.emitter),
      layout_(zero.layout),
      overlap_(zero.config.overlap_comm),
      adds_up_at_once_(zero.config.immediate_grad_update || !is_bf16_optimizer(zero.config)),
      gradients_(zero.tensors.gradients),
      fp32_gradients_(zero.tensors.fp32_gradients) {
  if (layout_.stage() >= 1 && !is_bf16_optimizer(zero.config)) reducer_.emplace(zero);
  if (layout_.stage() >= 2)
    slabs_.assign(static_cast<std::size_t>(layout_.table().num_units()), no_tensor);
}

void GradientSink::begin_backward(MicroStep micro) {
  micro_ = micro;
  if (!slabs_.empty()) {
    reducer_->begin(micro.first, micro.last);
  } else if (reducer_ && micro.last && overlap_) {
    reducer_->begin(true, true);
  }
}

void GradientSink::open(int unit) {
  if (slabs_.empty()) return;
  slabs_[static_cast<std::size_t>(unit)] =
      emitter_.acquire("unit gradients", unit - 1, Category::gradients, emitter_.type(),
                       layout_.table().unit_elements(unit));
}

void GradientSink::close(int unit) {
  if (fp32_gradients_ != no_tensor && adds_up_at_once_) add_up(unit);
  if (!slabs_.empty()) {
    reducer_->arrive(unit, unit_view(unit), slabs_[static_cast<std::size_t>(unit)]);
  } else if (reducer_ && micro_.last && overlap_) {
    reducer_->arrive(unit, unit_view(unit), no_tensor);
  }
}

void GradientSink::add_up(int unit) {
  const View sum = at(fp32_gradients_, unit_view(unit).offset_elements);
  const std::int64_t count = layout_.table().unit_elements(unit);
  if (micro_.first) {
    emitter_.emit(op::Convert{sum, unit_view(unit), count});
  } else {
    emitter_.emit(op::Add{sum, unit_view(unit), count});
  }
  // DeepSpeed reduces them in the parameters' type all the same.
  if (micro_.last && reducer_) emitter_.emit(op::Convert{unit_view(unit), sum, count});
}

void GradientSink::end_backward() {
  if (fp32_gradients_ != no_tensor && !adds_up_at_once_)
    for (int unit = 0; unit < layout_.table().num_units(); ++unit) add_up(unit);
  if (!reducer_) return;
  if (slabs_.empty()) {
    if (!micro_.last) return;
    if (!overlap_) {
      reducer_->begin(true, true);
      for (int unit = 0; unit < layout_.table().num_units(); ++unit)
        reducer_->arrive(unit, unit_view(unit), no_tensor);
    }
  }
  reducer_->finish();
}

View GradientSink::unit_view(int unit) const {
  if (!slabs_.empty()) return at(slabs_[static_cast<std::size_t>(unit)]);
  return at(gradients_, layout_.parameter(layout_.table().unit_range(unit).first).offset);
}

View GradientSink::view(int unit, ParameterRole role) const {
  const int index = layout_.table().find(unit, role);
  if (index < 0) return {};
  const int first = layout_.table().unit_range(unit).first;
  return moved(unit_view(unit), layout_.parameter(index).offset - layout_.parameter(first).offset);
}

}  // namespace dstune::plan
