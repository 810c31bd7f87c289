#pragma once
/// Forward and backward of one micro-step, from the embeddings to the last gradient.

#include "parts/head.hpp"

namespace dstune::plan {

void emit_micro_step(const Context& context, MicroStep micro);

}  // namespace dstune::plan
