#include "matrix_products.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <omp.h>

#include "matmul.hpp"
#include "threads.hpp"

namespace dstune::kernels {
namespace {

/// A product in the types it is asked for, or over panels where the processor has no code for them.
class Product {
 public:
  explicit Product(const MatmulShape& shape) {
    try {
      direct_.emplace(shape);
    } catch (const dnnl::error&) {
      if (shape.type == DType::f32 && shape.out_type == DType::f32) throw;
      panels_.emplace(shape);
    }
  }

  [[nodiscard]] std::size_t workspace_bytes() const {
    const std::size_t bytes = direct_ ? direct_->scratchpad_bytes() : panels_->workspace_bytes();
    return bytes == 0 ? 0 : bytes + workspace_alignment;
  }

  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) {
    void* aligned = reinterpret_cast<void*>(padded(reinterpret_cast<std::size_t>(workspace)));
    if (direct_) {
      direct_->run(a, b, bias, c, aligned);
    } else {
      panels_->run(a, b, bias, c, aligned);
    }
  }

 private:
  std::optional<DirectProduct> direct_;
  std::optional<PanelProduct> panels_;
};

/// oneDNN fixes the number of threads when it builds a primitive.
struct Key {
  MatmulShape shape;
  int threads = 1;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const MatmulShape& shape = key.shape;
    const auto flags = static_cast<std::uint64_t>(
        shape.transpose_a | shape.transpose_b << 1 | shape.accumulate << 2 | shape.has_bias << 3 |
        static_cast<int>(shape.type) << 4 | static_cast<int>(shape.out_type) << 6);
    std::uint64_t hash = counter_hash(flags, static_cast<std::uint64_t>(key.threads), 0);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.m), 1);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.n), 2);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.row_of_a()), 3);
    hash = counter_hash(hash, static_cast<std::uint64_t>(shape.row_of_c()), 4);
    return counter_hash(hash, static_cast<std::uint64_t>(shape.k), 5);
  }
};

std::mutex products_mutex;

/// The cached product; products_mutex is held.
Product& product_of(const MatmulShape& shape) {
  static std::unordered_map<Key, Product, KeyHash> products;
  const int threads = cpu_threads();
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  return products.try_emplace(Key{shape, threads}, shape).first->second;
}

}  // namespace

std::size_t matmul_workspace_bytes(const MatmulShape& shape) {
  const std::lock_guard lock(products_mutex);
  return product_of(shape).workspace_bytes();
}

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace) {
  const std::lock_guard lock(products_mutex);
  product_of(shape).run(a, b, bias, c, workspace);
}

const char* matmul_library() {
  static const std::string text = [] {
    const dnnl_version_t& version = *dnnl::version();
    return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.patch);
  }();
  return text.c_str();
}

namespace {

using dnnl::memory;

memory::data_type data_type(DType type) {
  switch (type) {
    case DType::f32:
      return memory::data_type::f32;
    case DType::bf16:
      return memory::data_type::bf16;
    case DType::f16:
      return memory::data_type::f16;
  }
  return memory::data_type::undef;
}

/// rows × columns, or stored the other way round; `stride` elements from one stored row to the
/// next.
memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t stride,
                    DType type) {
  return {{rows, columns},
          data_type(type),
          transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  static dnnl::stream in_order(engine());
  return in_order;
}

}  // namespace

DirectProduct::Piece::Piece(const MatmulShape& shape, std::int64_t first_k, std::int64_t whole_k)
    : a_offset_(bytes_of(shape.type, shape.transpose_a ? first_k * shape.row_of_a() : first_k)),
      b_offset_(bytes_of(shape.type, shape.transpose_b ? first_k : first_k * shape.n)),
      has_bias_(shape.has_bias) {
  const memory::desc a = matrix(shape.m, shape.k, shape.transpose_a, shape.row_of_a(), shape.type);
  const memory::desc b = matrix(shape.k, shape.n, shape.transpose_b,
                                shape.transpose_b ? whole_k : shape.n, shape.type);
  const memory::desc bias = matrix(1, shape.n, false, shape.n, shape.type);
  const memory::desc c = matrix(shape.m, shape.n, false, shape.row_of_c(), shape.out_type);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0F);
    attributes.set_post_ops(after);
  }
  const dnnl::matmul::desc description =
      has_bias_ ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc chosen(description, attributes, engine());
  // Its plain loops are a hundred times slower than an fp32 product of converted operands.
  if (shape.type != DType::f32 && std::string_view(chosen.impl_info_str()).starts_with("ref"))
    throw dnnl::error(dnnl_unimplemented, "no fast product of this type");
  primitive_ = dnnl::matmul(chosen);
  scratchpad_bytes_ = chosen.scratchpad_desc().get_size();
  arguments_ = {memory(a, engine(), nullptr), memory(b, engine(), nullptr),
                memory(c, engine(), nullptr), memory(chosen.scratchpad_desc(), engine(), nullptr),
                memory(bias, engine(), nullptr)};
}

void DirectProduct::Piece::run(const char* a, const char* b, const void* bias, void* c,
                               void* scratchpad) {
  arguments_[0].set_data_handle(const_cast<char*>(a + a_offset_));
  arguments_[1].set_data_handle(const_cast<char*>(b + b_offset_));
  arguments_[2].set_data_handle(c);
  arguments_[3].set_data_handle(scratchpad);
  arguments_[4].set_data_handle(const_cast<void*>(bias));
  const std::array<dnnl_exec_arg_t, 5> list = {{{DNNL_ARG_SRC, arguments_[0].get()},
                                                {DNNL_ARG_WEIGHTS, arguments_[1].get()},
                                                {DNNL_ARG_DST, arguments_[2].get()},
                                                {DNNL_ARG_SCRATCHPAD, arguments_[3].get()},
                                                {DNNL_ARG_BIAS, arguments_[4].get()}}};
  // The C call: the C++ one wants a map, built on the heap every time.
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive_.get(), stream().get(), has_bias_ ? 5 : 4, list.data()),
      "matrix product failed");
}

DirectProduct::DirectProduct(const MatmulShape& shape) {
  // oneDNN's fp32 kernels lose a quarter of their speed on very long sums over an untransposed B.
  constexpr std::int64_t longest_sum = 3072;
  const bool split = shape.type == DType::f32 && !shape.transpose_a && !shape.transpose_b &&
                     shape.k > 2 * longest_sum;
  const std::int64_t step = split ? longest_sum : shape.k;
  for (std::int64_t first_k = 0; first_k < shape.k; first_k += step) {
    MatmulShape part = shape;
    part.stride_a = shape.row_of_a();
    part.k = std::min(step, shape.k - first_k);
    part.accumulate = shape.accumulate || first_k > 0;
    part.has_bias = shape.has_bias && first_k == 0;
    pieces_.emplace_back(part, first_k, shape.k);
  }
}

std::size_t DirectProduct::scratchpad_bytes() const {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces_) bytes = std::max(bytes, piece.scratchpad_bytes());
  return bytes;
}

void DirectProduct::run(const void* a, const void* b, const void* bias, void* c, void* scratchpad) {
  for (Piece& piece : pieces_)
    piece.run(static_cast<const char*>(a), static_cast<const char*>(b), bias, c, scratchpad);
}

namespace {

/// Of the panels' fp32 copies together: they should stay in the second-level caches.
constexpr std::int64_t panel_bytes = std::int64_t{2} << 20;
constexpr std::int64_t min_in_panel = 64;

/// The step that cuts `length` into equal panels, the last one possibly shorter.
std::int64_t panel_step(std::int64_t length, std::int64_t others) {
  const std::int64_t most =
      std::max(min_in_panel, panel_bytes / (std::int64_t{sizeof(float)} * others));
  const std::int64_t panels = (length + most - 1) / most;
  const std::int64_t equal = (length + panels - 1) / panels;
  return std::min(length, (equal + min_in_panel - 1) / min_in_panel * min_in_panel);
}

/// rows × columns elements with conversion; strides in elements.
void convert_rows(DType to, void* y, std::int64_t y_stride, DType from, const void* x,
                  std::int64_t x_stride, std::int64_t rows, std::int64_t columns) {
  const Table& table = cpu_table();
  if (y_stride == columns && x_stride == columns)
    return table.convert(to, y, from, x, rows * columns);
#pragma omp parallel for schedule(static) num_threads(threads_for(rows* columns))
  for (std::int64_t row = 0; row < rows; ++row) {
    table.convert(to, static_cast<char*>(y) + bytes_of(to, row * y_stride), from,
                  static_cast<const char*>(x) + bytes_of(from, row * x_stride), columns);
  }
}

}  // namespace

PanelProduct::PanelProduct(const MatmulShape& shape)
    : shape_(shape),
      along_(shape.m >= std::max(shape.n, shape.k) ? Along::m
             : shape.n >= shape.k                  ? Along::n
                                                   : Along::k),
      length_(std::max({shape.m, shape.n, shape.k})),
      step_(panel_step(length_, shape.m + shape.n + shape.k - length_)),
      whole_(panel(step_, false)) {
  if (along_ == Along::k && step_ < length_) later_.emplace(panel(step_, true));
  if (length_ % step_ != 0) rest_.emplace(panel(length_ % step_, true));
}

DirectProduct PanelProduct::panel(std::int64_t count, bool later) const {
  MatmulShape part = shape_;
  part.type = part.out_type = DType::f32;
  part.stride_a = part.stride_c = 0;
  if (along_ == Along::m) part.m = count;
  if (along_ == Along::n) part.n = count;
  if (along_ == Along::k) {
    part.k = count;
    part.accumulate = shape_.accumulate || later;
    part.has_bias = shape_.has_bias && !later;
  }
  return DirectProduct(part);
}

PanelProduct::Region PanelProduct::region_a(std::int64_t first, std::int64_t count) const {
  const Region stored = shape_.transpose_a ? Region{0, 0, shape_.k, shape_.m, shape_.row_of_a()}
                                           : Region{0, 0, shape_.m, shape_.k, shape_.row_of_a()};
  if (along_ == Along::n) return stored;
  if ((along_ == Along::k) == shape_.transpose_a)
    return {first, 0, count, stored.columns, stored.stride};
  return {0, first, stored.rows, count, stored.stride};
}

PanelProduct::Region PanelProduct::region_b(std::int64_t first, std::int64_t count) const {
  const Region stored = shape_.transpose_b ? Region{0, 0, shape_.n, shape_.k, shape_.k}
                                           : Region{0, 0, shape_.k, shape_.n, shape_.n};
  if (along_ == Along::m) return stored;
  if ((along_ == Along::n) == shape_.transpose_b)
    return {first, 0, count, stored.columns, stored.stride};
  return {0, first, stored.rows, count, stored.stride};
}

PanelProduct::Region PanelProduct::region_c(std::int64_t first, std::int64_t count) const {
  if (along_ == Along::m) return {first, 0, count, shape_.n, shape_.row_of_c()};
  if (along_ == Along::n) return {0, first, shape_.m, count, shape_.row_of_c()};
  return {0, 0, shape_.m, shape_.n, shape_.row_of_c()};
}

std::size_t PanelProduct::workspace_bytes() const {
  std::size_t scratchpad = whole_.scratchpad_bytes();
  if (later_) scratchpad = std::max(scratchpad, later_->scratchpad_bytes());
  if (rest_) scratchpad = std::max(scratchpad, rest_->scratchpad_bytes());
  const Copies end = place(nullptr);
  return reinterpret_cast<std::size_t>(end.scratchpad) + scratchpad;
}

PanelProduct::Copies PanelProduct::place(void* workspace) const {
  auto next = reinterpret_cast<std::uintptr_t>(workspace);
  const auto take = [&](std::int64_t count) {
    const std::uintptr_t place = next;
    next += padded(bytes_of(DType::f32, count));
    return reinterpret_cast<float*>(place);
  };
  Copies copies{};
  copies.a = take(region_a(0, step_).count());
  copies.b = take(region_b(0, step_).count());
  copies.c = take(region_c(0, step_).count());
  copies.bias = take(shape_.has_bias ? shape_.n : 0);
  copies.scratchpad = reinterpret_cast<void*>(next);
  return copies;
}

void PanelProduct::run(const void* a, const void* b, const void* bias, void* c, void* workspace) {
  const Copies copies = place(workspace);
  const auto widen = [&](float* to, const Region& from, const void* matrix, DType type) {
    convert_rows(DType::f32, to, from.columns, type,
                 static_cast<const char*>(matrix) + bytes_of(type, from.offset()), from.stride,
                 from.rows, from.columns);
  };
  const auto narrow = [&](const Region& to) {
    convert_rows(shape_.out_type, static_cast<char*>(c) + bytes_of(shape_.out_type, to.offset()),
                 to.stride, DType::f32, copies.c, to.columns, to.rows, to.columns);
  };
  if (shape_.has_bias) cpu_table().convert(DType::f32, copies.bias, shape_.type, bias, shape_.n);
  if (along_ == Along::m) widen(copies.b, region_b(0, 0), b, shape_.type);
  if (along_ == Along::n) widen(copies.a, region_a(0, 0), a, shape_.type);
  const bool sums_stay = along_ == Along::k;
  if (sums_stay && shape_.accumulate) widen(copies.c, region_c(0, 0), c, shape_.out_type);

  for (std::int64_t first = 0; first < length_; first += step_) {
    const std::int64_t count = std::min(step_, length_ - first);
    if (along_ != Along::n) widen(copies.a, region_a(first, count), a, shape_.type);
    if (along_ != Along::m) widen(copies.b, region_b(first, count), b, shape_.type);
    if (!sums_stay && shape_.accumulate)
      widen(copies.c, region_c(first, count), c, shape_.out_type);
    const float* panel_bias = along_ == Along::n ? copies.bias + first : copies.bias;
    product_of(first).run(copies.a, copies.b, panel_bias, copies.c, copies.scratchpad);
    if (!sums_stay) narrow(region_c(first, count));
  }
  if (sums_stay) narrow(region_c(0, 0));
}

DirectProduct& PanelProduct::product_of(std::int64_t first) {
  if (length_ - first < step_) return *rest_;
  return first > 0 && later_ ? *later_ : whole_;
}

}  // namespace dstune::kernels
