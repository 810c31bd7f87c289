#include "fake_blas.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numbers>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::test {
namespace {

FakeBlas* current = nullptr;

void expect(bool holds, const char* what) {
  if (!holds && current->fault.empty()) current->fault = what;
}

bool fails() {
  return current->calls++ == current->failing_call;
}

struct Matrix {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t left = CUBLAS_OP_N, right = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_64F;
  const void* aux = nullptr;
  std::int64_t aux_stride = 0;
  bool is_searched = false;
};

struct Preference {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};

/// What an algorithm's 64 bytes hold.
struct Algorithm {
  std::uint32_t number;
  std::uint32_t alignments[4];
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class Fake, class Real, class... Parts>
cublasStatus_t make(Real** made, Parts... parts) {
  if (fails()) return CUBLAS_STATUS_ALLOC_FAILED;
  ++current->alive;
  *made = reinterpret_cast<Real*>(new Fake{parts...});
  return CUBLAS_STATUS_SUCCESS;
}
template <class Fake, class Real>
cublasStatus_t destroy(Real* made) {
  --current->alive;
  delete reinterpret_cast<Fake*>(made);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t assign(T& to, const void* value, std::size_t bytes) {
  expect(bytes == sizeof(T), "an attribute of another size");
  std::memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

struct Context {};

std::size_t get_version() {
  return current->version;
}

cublasStatus_t describe(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t attribute,
                        const void* value, std::size_t bytes) {
  if (fails()) return CUBLAS_STATUS_INVALID_VALUE;
  auto& description = *reinterpret_cast<Description*>(made);
  expect(!description.is_searched || attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ||
             attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
         "an attribute that the search knew nothing of");
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(description.left, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(description.right, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(description.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(description.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(description.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(description.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(description.aux_stride, value, bytes);
    default:
      expect(false, "an unexpected attribute of a product");
      return CUBLAS_STATUS_SUCCESS;
  }
}

cublasStatus_t prefer(cublasLtMatmulPreference_t made,
                      cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                      std::size_t bytes) {
  if (fails()) return CUBLAS_STATUS_INVALID_VALUE;
  auto& preference = *reinterpret_cast<Preference*>(made);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(preference.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(preference.alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                    value, bytes);
    default:
      expect(false, "an unexpected preference");
      return CUBLAS_STATUS_SUCCESS;
  }
}

bool has_bias(const Description& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_BIAS || d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
/// Of the right operand, over the terms of the product's sums.
bool sums_right(const Description& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool has_bias_or_its_gradient(const Description& d) {
  return has_bias(d) || sums_right(d);
}
bool writes_aux(const Description& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_aux(const Description& d) {
  return writes_aux(d) || d.epilogue == CUBLASLT_EPILOGUE_DGELU;
}

double gelu(double x) {
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double factor = std::sqrt(2.0 / std::numbers::pi);
  const double tanh = std::tanh(factor * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + tanh) +
         0.5 * x * (1.0 - tanh * tanh) * factor * (1.0 + 3.0 * 0.044715 * x * x);
}

bool is_at(const void* address, std::uint32_t multiple) {
  return reinterpret_cast<std::uintptr_t>(address) % multiple == 0;
}

/// The rules that hold whoever asks, and the types that the manual lists for sums in fp32.
void check(const Description& description, const Matrix& left, const Matrix& right, const Matrix& c,
           const Matrix& d) {
  expect(description.compute == CUBLAS_COMPUTE_32F && description.scale == CUDA_R_32F,
         "other arithmetic than fp32");
  expect(left.type == right.type && c.type == d.type, "operands of two types");
  expect(d.type == left.type || d.type == CUDA_R_32F, "a product of no such type");
  expect(description.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
             has_bias_or_its_gradient(description) || has_aux(description),
         "an unexpected epilogue");
  if (has_bias_or_its_gradient(description)) {
    expect(description.bias != nullptr && description.bias_type == d.type,
           "a bias of another type than the result's");
  }
  if (has_aux(description)) {
    expect(description.aux != nullptr, "an activation without its input");
    expect(description.aux_stride % 8 == 0 &&
               description.aux_stride >= static_cast<std::int64_t>(d.rows),
           "an activation's input of columns that no algorithm takes");
  }
  for (const Matrix* matrix : {&left, &right, &c, &d})
    expect(matrix->stride >= static_cast<std::int64_t>(matrix->rows), "columns that overlap");
}

cublasStatus_t search(cublasLtHandle_t, cublasLtMatmulDesc_t description_made,
                      cublasLtMatrixLayout_t left, cublasLtMatrixLayout_t right,
                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                      cublasLtMatmulPreference_t preference_made, int most,
                      cublasLtMatmulHeuristicResult_t* results, int* count) {
  if (fails()) return CUBLAS_STATUS_NOT_SUPPORTED;
  auto& description = *reinterpret_cast<Description*>(description_made);
  const auto& preference = *reinterpret_cast<const Preference*>(preference_made);
  check(description, *reinterpret_cast<const Matrix*>(left),
        *reinterpret_cast<const Matrix*>(right), *reinterpret_cast<const Matrix*>(c),
        *reinterpret_cast<const Matrix*>(d));
  expect((preference.reductions &
          ~static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) == 0,
         "sums in other than fp32");
  ++current->searches;
  current->searched.push_back(description.epilogue);
  description.is_searched = true;
  *count = 0;
  if (has_bias(description) && !current->adds_bias) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_aux(description) && !current->activates) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (sums_right(description) && !current->sums) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *count < most && *count < current->algorithms; ++*count) {
    Algorithm algorithm{static_cast<std::uint32_t>(*count), {}};
    std::memcpy(algorithm.alignments, preference.alignments, sizeof(preference.alignments));
    std::memcpy(&results[*count].algo, &algorithm, sizeof(algorithm));
    results[*count].state = CUBLAS_STATUS_SUCCESS;
    results[*count].workspaceSize = preference.workspace_bytes;
  }
  // What the library itself says that it does not recommend.
  if (*count < most) {
    results[*count] = {};
    results[*count].state = CUBLAS_STATUS_NOT_SUPPORTED;
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}

DType type_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? DType::f32 : type == CUDA_R_16BF ? DType::bf16 : DType::f16;
}

std::vector<float> read(cudaDataType_t type, const void* from, std::size_t count) {
  std::vector<float> values(count);
  cpu_table("portable")
      ->convert(DType::f32, values.data(), type_of(type), from, static_cast<std::int64_t>(count));
  return values;
}
std::vector<float> read(const Matrix& matrix, const void* from) {
  return read(matrix.type, from, static_cast<std::size_t>(matrix.stride) * matrix.columns);
}
void write(const Matrix& matrix, void* to, const std::vector<float>& values) {
  cpu_table("portable")
      ->convert(type_of(matrix.type), to, DType::f32, values.data(),
                static_cast<std::int64_t>(values.size()));
}

float number_at(const void* address) {
  float number = 0.0F;
  std::memcpy(&number, address, sizeof(number));
  return number;
}

/// What was asked for, as it was then.
struct Product {
  Description description;
  Matrix left, right, result;
  const void *a, *b, *c;
  void *d, *workspace;
  std::size_t workspace_bytes;
  float share, old_share;

  [[nodiscard]] bool turns_left() const { return description.left == CUBLAS_OP_T; }
  [[nodiscard]] bool turns_right() const { return description.right == CUBLAS_OP_T; }
  [[nodiscard]] std::uint64_t terms() const { return turns_left() ? left.rows : left.columns; }
  void run() const;
};

void Product::run() const {
  std::memset(workspace, 0x5a, workspace_bytes > 4096 ? 4096 : workspace_bytes);
  static_cast<char*>(workspace)[workspace_bytes - 1] = 0x5a;

  const std::vector<float> of_left = read(left, a);
  const std::vector<float> of_right = read(right, b);
  std::vector<float> of_result = read(result, old_share != 0.0F ? c : d);
  const std::vector<float> bias = has_bias(description)
                                      ? read(description.bias_type, description.bias, result.rows)
                                      : std::vector<float>(result.rows);
  // An epilogue's own type is the result's.
  const Matrix aux{result.type, result.rows, result.columns, description.aux_stride};
  std::vector<float> of_aux =
      has_aux(description) ? read(aux, description.aux) : std::vector<float>{};
  std::vector<float> column_sums;
  for (std::uint64_t column = 0; column < result.columns; ++column) {
    const auto right_at = [&](std::uint64_t term) {
      return turns_right() ? column + term * static_cast<std::uint64_t>(right.stride)
                           : term + column * static_cast<std::uint64_t>(right.stride);
    };
    double column_sum = 0.0;
    for (std::uint64_t term = 0; term < terms(); ++term) column_sum += of_right[right_at(term)];
    column_sums.push_back(static_cast<float>(column_sum));
    for (std::uint64_t row = 0; row < result.rows; ++row) {
      const auto left_at = [&](std::uint64_t term) {
        return turns_left() ? term + row * static_cast<std::uint64_t>(left.stride)
                            : row + term * static_cast<std::uint64_t>(left.stride);
      };
      double sum = 0.0;
      for (std::uint64_t term = 0; term < terms(); ++term)
        sum += static_cast<double>(of_left[left_at(term)]) * of_right[right_at(term)];
      float& to = of_result[row + column * static_cast<std::uint64_t>(result.stride)];
      const double old = old_share != 0.0F ? old_share * to : 0.0F;
      double value = share * sum + old + bias[row];
      if (has_aux(description)) {
        float& input = of_aux[row + column * static_cast<std::uint64_t>(aux.stride)];
        if (writes_aux(description)) input = static_cast<float>(value);
        value = writes_aux(description) ? gelu(value) : value * gelu_slope(input);
      }
      to = static_cast<float>(value);
    }
  }
  if (writes_aux(description)) write(aux, const_cast<void*>(description.aux), of_aux);
  // Stored, whatever the share of what was there.
  if (sums_right(description)) {
    write({description.bias_type, result.columns, 1, static_cast<std::int64_t>(result.columns)},
          const_cast<void*>(description.bias), column_sums);
  }
  write(result, d, of_result);
}

cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t description_made, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t left_made, const void* b,
                      cublasLtMatrixLayout_t right_made, const void* beta, const void* c,
                      cublasLtMatrixLayout_t c_made, void* d, cublasLtMatrixLayout_t d_made,
                      const cublasLtMatmulAlgo_t* chosen, void* workspace,
                      std::size_t workspace_bytes, cudaStream_t stream) {
  if (fails()) return CUBLAS_STATUS_EXECUTION_FAILED;
  Algorithm algorithm{};
  std::memcpy(&algorithm, chosen, sizeof(algorithm));
  const int number = static_cast<int>(algorithm.number);
  const auto& description = *reinterpret_cast<const Description*>(description_made);
  current->runs.push_back(number);
  current->epilogues.push_back(description.epilogue);
  if (current->failing.count(number) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;

  const auto& left = *reinterpret_cast<const Matrix*>(left_made);
  const auto& right = *reinterpret_cast<const Matrix*>(right_made);
  const auto& result = *reinterpret_cast<const Matrix*>(d_made);
  check(description, left, right, *reinterpret_cast<const Matrix*>(c_made), result);
  expect(stream != nullptr || current->takes_default_stream, "another stream than the caller's");
  const void* const addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    expect(is_at(addresses[i], algorithm.alignments[i]), "an operand less aligned than was said");
  if (has_bias_or_its_gradient(description)) {
    expect(is_at(description.bias, 16), "a bias that a kernel can not move 16 bytes at once of");
    const auto* const bias = static_cast<const char*>(description.bias);
    const auto* const scratch = static_cast<const char*>(workspace);
    expect(bias < scratch || bias >= scratch + workspace_bytes, "a bias in the workspace");
  }
  if (has_aux(description)) {
    expect(is_at(description.aux, 16), "an activation's input likewise");
    expect(number_at(beta) == 0.0F, "an activation of a sum with what was there");
    expect(description.aux != d, "an activation in the place of its input");
  }
  expect(is_at(workspace, 256), "a workspace that is not aligned");
  const Product product{
      description,      left,           right, result, a, b, c, d, workspace, workspace_bytes,
      number_at(alpha), number_at(beta)};
  expect((product.turns_left() ? left.columns : left.rows) == result.rows &&
             (product.turns_right() ? right.rows : right.columns) == result.columns &&
             (product.turns_right() ? right.columns : right.rows) == product.terms(),
         "matrices that do not fit together");
  current->enqueue(stream, [product] { product.run(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeBlas::FakeBlas() {
  current = this;
}
FakeBlas::~FakeBlas() {
  current = nullptr;
}

const cuda::BlasLibrary& FakeBlas::functions() {
  static const cuda::BlasLibrary library{get_version,
                                         make<Context>,
                                         destroy<Context>,
                                         make<Description>,
                                         destroy<Description>,
                                         describe,
                                         make<Matrix>,
                                         destroy<Matrix>,
                                         make<Preference>,
                                         destroy<Preference>,
                                         prefer,
                                         search,
                                         matmul};
  return library;
}

}  // namespace dstune::kernels::test
