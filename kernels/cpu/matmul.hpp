#pragma once
/// Matrix products through oneDNN, shared by every table; kernels.hpp has the contract.

#include <cstddef>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {

std::size_t matmul_workspace_bytes(const MatmulShape& shape);
void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace);

}  // namespace dstune::kernels
