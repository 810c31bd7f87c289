#include "matrix_products.hpp"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace dstune::kernels::cuda {
namespace {

/// More makes no difference to an algorithm: the widest loads, and those of Hopper's copy engine,
/// want 16 bytes. So addresses that are better aligned share what was chosen.
constexpr std::uintptr_t max_alignment = 16;
constexpr int max_candidates = 24;

/// The library refused an epilogue, or all of the product.
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
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(address) | max_alignment;
  return static_cast<std::uint32_t>(bits & ~(bits - 1));
}

std::uintptr_t aligned(std::uintptr_t place) {
  constexpr std::uintptr_t mask = MatrixProducts::workspace_alignment - 1;
  return (place + mask) & ~mask;
}
void* aligned(void* workspace) {
  return reinterpret_cast<void*>(aligned(reinterpret_cast<std::uintptr_t>(workspace)));
}

std::size_t bytes_of(DType type, std::int64_t count) {
  return static_cast<std::size_t>(count) * (type == DType::f32 ? 4 : 2);
}

/// Tells whether an epilogue can read or write there beside the matrices. The library is to go by
/// such an address, but was seen to choose kernels that move 16 bytes at once all the same
/// (pytorch/pytorch, pull request 194497), and a GPU that meets a wrong address is lost.
bool can_take(const void* address) {
  return alignment_of(address) == max_alignment;
}

/// Its GELU is the tanh form. In fp32 nothing says how exact its tanh is. Its data for backward has
/// rows of a multiple of 8 elements there.
bool can_activate(const MatmulShape& shape, Activation activation, const void* input) {
  return activation == Activation::gelu_tanh && shape.type != DType::f32 &&
         shape.out_type == shape.type && shape.n % 8 == 0 && can_take(input);
}

/// Half of the workspace is the library's at least. The sum of a single column was reported to meet
/// an illegal address (NVIDIA/apex #1392); no report names multiples of 8.
bool can_sum(const MatmulShape& shape, const void* d_bias) {
  return bytes_of(shape.type, shape.m) <= MatrixProducts::library_workspace_bytes / 2 &&
         shape.m % 8 == 0 && (shape.accumulate || can_take(d_bias));
}

std::string words_for(const MatmulShape& shape, cublasStatus_t status) {
  const auto size = [](std::int64_t rows, std::int64_t columns) {
    return std::to_string(rows) + " x " + std::to_string(columns);
  };
  const char* const type = shape.type == DType::f32    ? "fp32"
                           : shape.type == DType::bf16 ? "bf16"
                                                       : "fp16";
  return "cuBLASLt does not multiply " + size(shape.m, shape.k) + " by " + size(shape.k, shape.n) +
         " in " + type + " (its status " + std::to_string(status) + ")";
}

}  // namespace

std::size_t MatrixProducts::KeyHash::operator()(const Key& key) const {
  const MatmulShape& shape = key.operation.shape;
  std::uint64_t hash = static_cast<std::uint64_t>(
      shape.transpose_a | shape.transpose_b << 1 | shape.accumulate << 2 | shape.has_bias << 3 |
      static_cast<int>(shape.type) << 4 | static_cast<int>(shape.out_type) << 6 |
      static_cast<int>(key.operation.then) << 8 | static_cast<int>(key.operation.activation) << 10);
  for (const std::int64_t part :
       {shape.m, shape.n, shape.k, shape.row_of_a(), shape.row_of_c(), std::int64_t{key.device}})
    hash = counter_hash(hash, key.alignments, static_cast<std::uint64_t>(part));
  return hash;
}

MatrixProducts::MatrixProducts(const BlasLibrary* library, Gpu& gpu, OwnKernels own, Choice choice,
                               KeptChoices* kept)
    : library_(library), gpu_(gpu), own_(own), choice_(choice), kept_(kept) {}

void MatrixProducts::run(const MatmulShape& shape, const void* a, const void* b, const void* bias,
                         void* c, void* workspace) {
  Call call{{shape}, a, b, c, workspace};
  if (shape.has_bias) call.bias = bias;
  serve(call);
}

void MatrixProducts::run_activation_forward(const MatmulShape& shape, Activation activation,
                                            const void* a, const void* b, const void* bias, void* c,
                                            void* activated, void* workspace) {
  Call call{{shape, Then::activation, activation}, a, b, c, workspace};
  call.bias = bias;
  call.activated = activated;
  serve(call);
}

void MatrixProducts::run_activation_backward(const MatmulShape& shape, Activation activation,
                                             const void* a, const void* b, const void* x, void* c,
                                             void* workspace) {
  Call call{{shape, Then::slope, activation}, a, b, c, workspace};
  call.x = x;
  serve(call);
}

void MatrixProducts::run_bias_backward(const MatmulShape& shape, const void* a, const void* b,
                                       void* c, void* d_bias, void* workspace) {
  Call call{{shape, Then::bias_gradient}, a, b, c, workspace};
  call.d_bias = d_bias;
  serve(call);
}

void MatrixProducts::serve(const Call& call) {
  const std::lock_guard lock(mutex_);
  hear_of_others();
  const std::optional<Parts> parts = parts_of(call);
  if (!parts || !is_faster_in_parts(call, *parts)) return serve_whole(call);
  serve_whole(parts->most);
  serve_whole(parts->rest);
}

/// The library's fast kernels want not only rows to begin at multiples of 16 bytes but dimensions
/// along them to be such multiples (its manual, "Tensor Core Usage"). Rows are made so by strides;
/// GPT-2's vocabulary of 50257 took ten times as long on an H100 as a multiple of 8 does.
std::optional<MatrixProducts::Parts> MatrixProducts::parts_of(const Call& call) const {
  const Operation& operation = call.operation;
  const MatmulShape& shape = operation.shape;
  const std::int64_t whole = max_alignment / static_cast<std::int64_t>(bytes_of(shape.type, 1));
  if (operation.then != Then::nothing) return std::nullopt;
  const auto at = [&](const void* data, std::int64_t elements) -> const void* {
    return static_cast<const char*>(data) + bytes_of(shape.type, elements);
  };
  const auto is_cut = [&](std::int64_t extent, std::int64_t row) {
    return extent % whole != 0 && extent >= min_extent_in_parts && row % whole == 0;
  };
  Parts parts{call, call};
  MatmulShape& most = parts.most.operation.shape;
  MatmulShape& rest = parts.rest.operation.shape;
  most.stride_a = rest.stride_a = shape.row_of_a();
  most.stride_c = rest.stride_c = shape.row_of_c();
  if (shape.transpose_b && is_cut(shape.n, shape.row_of_c())) {
    most.n = shape.n / whole * whole;
    rest.n = shape.n - most.n;
    parts.rest.b = at(call.b, most.n * shape.k);
    if (call.bias != nullptr) parts.rest.bias = at(call.bias, most.n);
    parts.rest.c = static_cast<char*>(call.c) + bytes_of(shape.out_type, most.n);
    return parts;
  }
  if (!shape.transpose_a && !shape.transpose_b && is_cut(shape.k, shape.row_of_a())) {
    most.k = shape.k / whole * whole;
    rest.k = shape.k - most.k;
    rest.accumulate = true;
    rest.has_bias = false;
    parts.rest.bias = nullptr;
    parts.rest.a = at(call.a, most.k);
    parts.rest.b = at(call.b, most.k * shape.n);
    return parts;
  }
  if (shape.transpose_a && is_cut(shape.m, shape.row_of_a())) {
    most.m = shape.m / whole * whole;
    rest.m = shape.m - most.m;
    parts.rest.a = at(call.a, most.m);
    parts.rest.c = static_cast<char*>(call.c) + bytes_of(shape.out_type, most.m * shape.row_of_c());
    return parts;
  }
  return std::nullopt;
}

bool MatrixProducts::is_faster_in_parts(const Call& call, const Parts& parts) {
  const Key key = key_of(call);
  if (const auto found = in_parts_.find(key); found != in_parts_.end()) return found->second;
  if (choice_ == Choice::first || gpu_.is_recording()) return true;
  constexpr std::size_t ways = 2;  // as a whole, in parts
  const auto kept = kept_ != nullptr ? kept_->find(words_of_parts(key), ways) : std::nullopt;
  if (kept) return in_parts_.emplace(key, *kept != 0).first->second;
  const bool is_faster = seconds_of(parts.most) + seconds_of(parts.rest) < seconds_of(call);
  in_parts_.emplace(key, is_faster);
  if (kept_ != nullptr) kept_->keep(words_of_parts(key), is_faster ? 1 : 0, ways);
  return is_faster;
}

double MatrixProducts::seconds_of(const Call& call) {
  Product& product = product_of(call);
  if (!product.is_settled || product.is_kept) {
    time(call, product, true);
    product.is_settled = true;
  }
  return product.seconds;
}

void MatrixProducts::serve_whole(const Call& call) {
  const MatmulShape& shape = call.operation.shape;
  if (shape.m <= 0 || shape.n <= 0) return;
  Product& product = product_of(call);
  if (!product.is_settled && !gpu_.is_recording()) {
    settle(call, product);
    product.is_settled = true;
  }
  while (!product.candidates.empty()) {
    if (execute(call, product, product.candidates.front())) return;
    product.candidates.erase(product.candidates.begin());
    // The next best is not known.
    if (product.is_kept && !gpu_.is_recording()) time(call, product, false);
  }
  throw std::runtime_error(words_for(shape, product.refusal));
}

MatrixProducts::Key MatrixProducts::key_of(const Call& call) const {
  std::uint64_t alignments = 0;
  for (const void* const address : std::initializer_list<const void*>{
           call.a, call.b, call.bias, call.c, call.activated, call.x, call.d_bias})
    alignments = alignments * 2 * max_alignment + alignment_of(address);
  return {call.operation, gpu_.device(), alignments};
}

MatrixProducts::Product& MatrixProducts::product_of(const Call& call) {
  const Key key = key_of(call);
  if (const auto found = products_.find(key); found != products_.end()) return found->second;
  return products_.emplace(key, build(call)).first->second;
}

std::string MatrixProducts::words_of(const Key& key) const {
  const MatmulShape& shape = key.operation.shape;
  std::string words =
      "cuBLASLt " + std::to_string(library_->get_version()) + ", " + gpu_.name() + ": product";
  for (const std::int64_t part :
       {shape.m, shape.n, shape.k, shape.row_of_a(), shape.row_of_c(),
        std::int64_t{shape.transpose_a}, std::int64_t{shape.transpose_b},
        std::int64_t{shape.accumulate}, std::int64_t{shape.has_bias},
        static_cast<std::int64_t>(shape.type), static_cast<std::int64_t>(shape.out_type),
        static_cast<std::int64_t>(key.operation.then),
        static_cast<std::int64_t>(key.operation.activation),
        static_cast<std::int64_t>(key.alignments)})
    words += " " + std::to_string(part);
  return words;
}

void MatrixProducts::hear_of_others() {
  if (kept_ == nullptr || kept_->revision() == revision_) return;
  revision_ = kept_->revision();
  for (auto& [key, product] : products_) product.is_settled = false;
  in_parts_.clear();
}

cublasLtEpilogue_t MatrixProducts::its_epilogue(Then then, const Epilogue& epilogue) {
  // Our A is its B, of which it sums what meets in a column of its result: a row of ours.
  if (epilogue.sums) return CUBLASLT_EPILOGUE_BGRADB;
  if (!epilogue.activates)
    return epilogue.adds_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (then == Then::slope) return CUBLASLT_EPILOGUE_DGELU;
  return epilogue.adds_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
}

cublasLtHandle_t MatrixProducts::context_of(int device) {
  if (const auto found = contexts_.find(device); found != contexts_.end())
    return found->second.get();
  cublasLtHandle_t context = nullptr;
  check(library_->create(&context));
  return contexts_.emplace(device, Context(context, library_->destroy)).first->second.get();
}

MatrixProducts::Product MatrixProducts::build(const Call& call) try {
  const Operation& operation = call.operation;
  const MatmulShape& shape = operation.shape;
  const auto layout = [&](DType type, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    check(library_->matrix_layout_create(&made, data_type(type), static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), stride));
    return Layout(made, library_->matrix_layout_destroy);
  };
  Product product;
  product.context = context_of(gpu_.device());
  product.left = shape.transpose_b ? layout(shape.type, shape.k, shape.n, shape.k)
                                   : layout(shape.type, shape.n, shape.k, shape.n);
  product.right = shape.transpose_a ? layout(shape.type, shape.m, shape.k, shape.row_of_a())
                                    : layout(shape.type, shape.k, shape.m, shape.row_of_a());
  product.result = layout(shape.out_type, shape.n, shape.m, shape.row_of_c());
  // Most of it first, since that is what the first choice takes.
  const bool can_add = shape.has_bias && shape.type == shape.out_type && can_take(call.bias);
  const bool is_activated = operation.then == Then::activation || operation.then == Then::slope;
  if (is_activated && shape.has_bias == can_add &&
      can_activate(shape, operation.activation, call.input()))
    add_candidates(call, {.adds_bias = can_add, .activates = true}, product);
  if (operation.then == Then::bias_gradient && can_sum(shape, call.d_bias))
    add_candidates(call, {.sums = true}, product);
  if (can_add) add_candidates(call, {.adds_bias = true}, product);
  add_candidates(call, {}, product);
  product.offered = product.candidates.size();
  return product;
} catch (const Refusal& refusal) {
  throw_if_out_of_memory(gpu_, refusal.status);
  Product refused;
  refused.refusal = refusal.status;
  return refused;
}

void MatrixProducts::add_candidates(const Call& call, const Epilogue& epilogue,
                                    Product& product) try {
  const MatmulShape& shape = call.operation.shape;
  cublasLtMatmulDesc_t description = nullptr;
  check(library_->matmul_desc_create(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  product.descriptions.emplace_back(description, library_->matmul_desc_destroy);
  const auto describe = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(library_->matmul_desc_set_attribute(description, attribute, &value, sizeof(value)));
  };
  describe(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  describe(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (epilogue.adds_bias || epilogue.sums)
    describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(shape.type));
  // The activation's input has the result's type where nothing else is said.
  if (epilogue.activates) describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.n);
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE, its_epilogue(call.operation.then, epilogue));
  // Their alignment is what the library goes by.
  check(set_pointers(call, epilogue, description));

  cublasLtMatmulPreference_t made = nullptr;
  check(library_->matmul_preference_create(&made));
  const Preference preference(made, library_->matmul_preference_destroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(library_->matmul_preference_set_attribute(made, attribute, &value, sizeof(value)));
  };
  const std::size_t workspace_limit = library_bytes(call, epilogue);
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_limit);
  // Parts of a sum are added up in fp32 or not at all.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const std::uint32_t of_result = alignment_of(call.result(epilogue));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_result);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_result);

  std::vector<cublasLtMatmulHeuristicResult_t> results(max_candidates);
  int count = 0;
  check(library_->matmul_algo_get_heuristic(
      product.context, description, product.left.get(), product.right.get(), product.result.get(),
      product.result.get(), made, max_candidates, results.data(), &count));
  results.resize(static_cast<std::size_t>(count));
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_limit)
      product.candidates.push_back({epilogue, description, result.algo, product.candidates.size()});
  }
} catch (const Refusal& refusal) {
  // Our kernels have the epilogue if it has not.
  throw_if_out_of_memory(gpu_, refusal.status);
  product.refusal = refusal.status;
}

void MatrixProducts::settle(const Call& call, Product& product) {
  product.is_kept = take_kept(call, product);
  if (!product.is_kept) time(call, product, false);
}

bool MatrixProducts::take_kept(const Call& call, Product& product) const {
  if (kept_ == nullptr || choice_ == Choice::first) return false;
  const auto place = kept_->find(words_of(key_of(call)), product.offered);
  if (!place) return false;
  const auto found = std::ranges::find(product.candidates, *place, &Candidate::place);
  if (found == product.candidates.end()) return false;
  std::rotate(product.candidates.begin(), found, found + 1);
  return true;
}

void MatrixProducts::time(const Call& call, Product& product, bool is_time_asked) {
  product.is_kept = false;
  const std::size_t least = is_time_asked ? 1 : 2;
  if (choice_ == Choice::first || product.candidates.size() < least) return;
  // Operands are only read, so they are the real ones, and so are results unless they are added to.
  const MatmulShape& shape = call.operation.shape;
  const auto give_back = [this](void* memory) { gpu_.give_back(memory); };
  std::unique_ptr<void, decltype(give_back)> scratch(nullptr, give_back);
  Call timed = call;
  if (shape.accumulate) {
    const std::size_t c_bytes = aligned(bytes_of(shape.out_type, shape.m * shape.row_of_c()));
    scratch.reset(gpu_.take(c_bytes + bytes_of(shape.type, shape.m)));
    if (scratch == nullptr) return;
    timed.c = scratch.get();
    timed.added_to = call.c;
    if (call.operation.then == Then::bias_gradient) {
      timed.d_bias = static_cast<char*>(timed.c) + c_bytes;
      add_up_columns(timed, false);  // or sums were added to what nobody wrote
    }
  }
  product.seconds = sort_by_time(gpu_, product.candidates, [&](const Candidate& candidate) {
    return execute(timed, product, candidate);
  });
  if (kept_ != nullptr && product.offered > 1 && !product.candidates.empty())
    kept_->keep(words_of(key_of(call)), product.candidates.front().place, product.offered);
}

bool MatrixProducts::execute(const Call& call, Product& product, const Candidate& candidate) {
  const float one = 1.0F;
  const float old_share = call.operation.shape.accumulate ? 1.0F : 0.0F;
  void* const result = call.result(candidate.epilogue);
  cublasStatus_t status = set_pointers(call, candidate.epilogue, candidate.description);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = library_->matmul(
        product.context, candidate.description, &one, call.b, product.left.get(), call.a,
        product.right.get(), &old_share, call.added_to != nullptr ? call.added_to : result,
        product.result.get(), result, product.result.get(), &candidate.algorithm,
        aligned(call.workspace), library_bytes(call, candidate.epilogue), gpu_.stream());
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw_if_out_of_memory(gpu_, status);
    product.refusal = status;
    return false;
  }
  finish(call, candidate.epilogue);
  return true;
}

std::size_t MatrixProducts::library_bytes(const Call& call, const Epilogue& epilogue) {
  const MatmulShape& shape = call.operation.shape;
  const bool keeps_sums = epilogue.sums && shape.accumulate;
  return library_workspace_bytes - (keeps_sums ? aligned(bytes_of(shape.type, shape.m)) : 0);
}

void* MatrixProducts::sums_of(const Call& call) {
  if (!call.operation.shape.accumulate) return call.d_bias;
  return static_cast<char*>(aligned(call.workspace)) + library_bytes(call, {.sums = true});
}

cublasStatus_t MatrixProducts::set_pointers(const Call& call, const Epilogue& epilogue,
                                            cublasLtMatmulDesc_t description) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* address) {
    return library_->matmul_desc_set_attribute(description, attribute, &address, sizeof(address));
  };
  if (epilogue.adds_bias || epilogue.sums) {
    const cublasStatus_t status =
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.sums ? sums_of(call) : call.bias);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  if (!epilogue.activates) return CUBLAS_STATUS_SUCCESS;
  return set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.input());
}

void MatrixProducts::finish(const Call& call, const Epilogue& done) const {
  const auto& [shape, then, activation] = call.operation;
  const std::int64_t count = shape.m * shape.n;
  if (shape.has_bias && !done.adds_bias) own_.add_bias(shape, call.bias, call.c);
  if (done.sums && shape.accumulate)
    own_.add(shape.type, call.d_bias, shape.type, sums_of(call), shape.m);
  if (done.activates || done.sums) return;
  if (then == Then::activation) {
    own_.activation_forward(shape.out_type, activation, call.activated, call.c, count);
  } else if (then == Then::slope) {
    own_.activation_backward(shape.out_type, activation, call.c, call.c, call.x, count);
  } else if (then == Then::bias_gradient) {
    add_up_columns(call, shape.accumulate);
  }
}

void MatrixProducts::add_up_columns(const Call& call, bool accumulate) const {
  const MatmulShape& shape = call.operation.shape;
  own_.bias_backward(shape.type, call.d_bias, call.a, shape.k, shape.m, shape.row_of_a(),
                     accumulate, call.workspace);
}

}  // namespace dstune::kernels::cuda
