#include "matrix_products.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "libraries/lack_of_memory.hpp"

namespace dstune::kernels::cuda {
namespace {

/// More makes no difference to an algorithm: the widest loads, and those of Hopper's copy engine,
/// want 16 bytes. So addresses that are better aligned share what was chosen.
constexpr std::uintptr_t most_alignment = 16;
constexpr int most_candidates = 8;

constexpr const char* name = "cuBLASLt";

/// The library refused: there are kernels of our own.
struct Refusal {
  cublasStatus_t status;
};

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Refusal{status};
}

cudaDataType_t data_type(DType type) {
  return type == DType::f32 ? CUDA_R_32F : type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

std::uint32_t alignment_of(const void* address) {
  // The lowest bit that is set, at most the 16s.
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(address) | most_alignment;
  return static_cast<std::uint32_t>(bits & ~(bits - 1));
}

void* aligned(void* workspace) {
  constexpr std::uintptr_t mask = MatrixProducts::workspace_alignment - 1;
  return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(workspace) + mask) & ~mask);
}

}  // namespace

std::size_t MatrixProducts::KeyHash::operator()(const Key& key) const {
  const MatmulShape& shape = key.shape;
  std::uint64_t hash = static_cast<std::uint64_t>(
      shape.transpose_a | shape.transpose_b << 1 | shape.accumulate << 2 | shape.has_bias << 3 |
      static_cast<int>(shape.type) << 4 | static_cast<int>(shape.out_type) << 6);
  for (const std::int64_t part :
       {shape.m, shape.n, shape.k, shape.row_of_a(), shape.row_of_c(), std::int64_t{key.device}})
    hash = counter_hash(hash, key.alignments, static_cast<std::uint64_t>(part));
  return hash;
}

MatrixProducts::MatrixProducts(const BlasLibrary* library, Gpu& gpu, OwnKernels own, Choice choice)
    : library_(library), gpu_(gpu), own_(own), choice_(choice) {}

void MatrixProducts::run(const MatmulShape& shape, const void* a, const void* b, const void* bias,
                         void* c, void* workspace) {
  if (library_ == nullptr || shape.m <= 0 || shape.n <= 0 || shape.k <= 0)
    return own_.matmul(shape, a, b, bias, c, workspace);
  const Arguments arguments{a, b, shape.has_bias ? bias : nullptr, c, aligned(workspace)};
  const std::lock_guard lock(mutex_);
  Product& product = product_of(shape, arguments);
  if (!product.is_settled && !gpu_.is_recording()) {
    settle(shape, product, arguments);
    product.is_settled = true;
  }
  while (!product.candidates.empty()) {
    if (execute(shape, product, product.candidates.front(), arguments, c)) {
      if (shape.has_bias && !product.fuses_bias) own_.add_bias(shape, bias, c);
      return;
    }
    product.candidates.erase(product.candidates.begin());
  }
  own_.matmul(shape, a, b, bias, c, workspace);
}

MatrixProducts::Product& MatrixProducts::product_of(const MatmulShape& shape,
                                                    const Arguments& arguments) {
  std::uint64_t alignments = 0;
  for (const void* const address :
       {arguments.a, arguments.b, arguments.bias, static_cast<const void*>(arguments.c)})
    alignments = alignments * 2 * most_alignment + alignment_of(address);
  const Key key{shape, gpu_.device(), alignments};
  if (const auto found = products_.find(key); found != products_.end()) return found->second;

  Product product;
  // Where bias and C differ in type, or an algorithm can not add it, a kernel of our own does.
  if (shape.has_bias && shape.type == shape.out_type) product = build(shape, arguments, true);
  if (product.candidates.empty()) product = build(shape, arguments, false);
  return products_.emplace(key, std::move(product)).first->second;
}

cublasLtHandle_t MatrixProducts::context_of(int device) {
  if (const auto found = contexts_.find(device); found != contexts_.end())
    return found->second.get();
  cublasLtHandle_t context = nullptr;
  check(library_->create(&context));
  return contexts_.emplace(device, Context(context, library_->destroy)).first->second.get();
}

cublasStatus_t MatrixProducts::set_bias(const Product& product, const void* bias) const {
  if (!product.fuses_bias) return CUBLAS_STATUS_SUCCESS;
  return library_->matmul_desc_set_attribute(
      product.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
}

MatrixProducts::Product MatrixProducts::build(const MatmulShape& shape, const Arguments& arguments,
                                              bool fuses_bias) try {
  const auto layout = [&](DType type, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    check(library_->matrix_layout_create(&made, data_type(type), static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), stride));
    return Layout(made, library_->matrix_layout_destroy);
  };
  Product product;
  product.context = context_of(gpu_.device());
  product.fuses_bias = fuses_bias;
  cublasLtMatmulDesc_t description = nullptr;
  check(library_->matmul_desc_create(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  product.description = Description(description, library_->matmul_desc_destroy);
  const auto describe = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(library_->matmul_desc_set_attribute(description, attribute, &value, sizeof(value)));
  };
  describe(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  describe(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (fuses_bias) {
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(shape.type));
  }
  check(set_bias(product, arguments.bias));
  product.left = shape.transpose_b ? layout(shape.type, shape.k, shape.n, shape.k)
                                   : layout(shape.type, shape.n, shape.k, shape.n);
  product.right = shape.transpose_a ? layout(shape.type, shape.m, shape.k, shape.row_of_a())
                                    : layout(shape.type, shape.k, shape.m, shape.row_of_a());
  product.result = layout(shape.out_type, shape.n, shape.m, shape.row_of_c());

  cublasLtMatmulPreference_t made = nullptr;
  check(library_->matmul_preference_create(&made));
  const Preference preference(made, library_->matmul_preference_destroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(library_->matmul_preference_set_attribute(made, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, library_workspace_bytes);
  // Parts of a sum are added up in fp32 or not at all.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(arguments.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(arguments.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(arguments.c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(arguments.c));

  std::vector<cublasLtMatmulHeuristicResult_t> results(most_candidates);
  int count = 0;
  check(library_->matmul_algo_get_heuristic(
      product.context, description, product.left.get(), product.right.get(), product.result.get(),
      product.result.get(), made, most_candidates, results.data(), &count));
  results.resize(static_cast<std::size_t>(count));
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= library_workspace_bytes)
      product.candidates.push_back(result.algo);
  }
  return product;
} catch (const Refusal& refusal) {
  throw_where_memory_lacks(gpu_, said_by(refusal.status), name);
  return {};
}

void MatrixProducts::settle(const MatmulShape& shape, Product& product,
                            const Arguments& arguments) {
  if (choice_ == Choice::first || product.candidates.size() < 2) return;
  // Operands are only read, so they are the real ones, and so is C unless it is added to.
  const auto give_back = [this](void* memory) { gpu_.give_back(memory); };
  std::unique_ptr<void, decltype(give_back)> scratch(nullptr, give_back);
  if (shape.accumulate) {
    const std::size_t element_bytes = shape.out_type == DType::f32 ? 4 : 2;
    scratch.reset(gpu_.take(static_cast<std::size_t>(shape.m * shape.row_of_c()) * element_bytes));
    if (scratch == nullptr) return;
  }
  void* const result = shape.accumulate ? scratch.get() : arguments.c;
  sort_by_time(gpu_, product.candidates, [&](const cublasLtMatmulAlgo_t& algorithm) {
    return execute(shape, product, algorithm, arguments, result);
  });
}

bool MatrixProducts::execute(const MatmulShape& shape, const Product& product,
                             const cublasLtMatmulAlgo_t& algorithm, const Arguments& arguments,
                             void* result) {
  const float one = 1.0F;
  const float old_share = shape.accumulate ? 1.0F : 0.0F;
  cublasStatus_t status = set_bias(product, arguments.bias);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status =
        library_->matmul(product.context, product.description.get(), &one, arguments.b,
                         product.left.get(), arguments.a, product.right.get(), &old_share,
                         arguments.c, product.result.get(), result, product.result.get(),
                         &algorithm, arguments.workspace, library_workspace_bytes, gpu_.stream());
  }
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  throw_where_memory_lacks(gpu_, said_by(status), name);
  return false;
}

}  // namespace dstune::kernels::cuda
