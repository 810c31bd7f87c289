// Matrix products through oneDNN, in types that it computes with on this processor.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "backend_parts.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {
namespace {

/// What starts at a multiple of this needs no second look at a cache line.
constexpr std::size_t workspace_alignment = 64;

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}
constexpr std::size_t bytes_of(DType type, std::int64_t count) {
  return (type == DType::f32 ? 4U : 2U) * static_cast<std::size_t>(count);
}

using dnnl::memory;

memory::data_type data_type(DType type) {
  if (type == DType::f32) return memory::data_type::f32;
  return type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f16;
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

/// One oneDNN primitive: the terms [first_k, first_k + shape.k) of a product.
class Piece {
 public:
  /// `shape` is the piece's, `whole_k` the product's. Throws dnnl::error where oneDNN has no fast
  /// code for the types.
  Piece(const MatmulShape& shape, std::int64_t first_k, std::int64_t whole_k)
      : a_offset_(bytes_of(shape.type, shape.transpose_a ? first_k * shape.row_of_a() : first_k)),
        b_offset_(bytes_of(shape.type, shape.transpose_b ? first_k : first_k * shape.n)),
        has_bias_(shape.has_bias) {
    const memory::desc a =
        matrix(shape.m, shape.k, shape.transpose_a, shape.row_of_a(), shape.type);
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

  [[nodiscard]] std::size_t scratchpad_bytes() const { return scratchpad_bytes_; }

  void run(const char* a, const char* b, const void* bias, void* c, void* scratchpad) {
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

 private:
  std::size_t a_offset_;
  std::size_t b_offset_;
  bool has_bias_;
  std::size_t scratchpad_bytes_ = 0;
  dnnl::matmul primitive_;
  std::array<memory, 5> arguments_;
};

class DirectProduct {
 public:
  /// Throws as its pieces do.
  explicit DirectProduct(const MatmulShape& shape) {
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

  [[nodiscard]] std::size_t scratchpad_bytes() const {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces_) bytes = std::max(bytes, piece.scratchpad_bytes());
    return bytes;
  }

  /// `scratchpad` is aligned.
  void run(const void* a, const void* b, const void* bias, void* c, void* scratchpad) {
    for (Piece& piece : pieces_)
      piece.run(static_cast<const char*>(a), static_cast<const char*>(b), bias, c, scratchpad);
  }

 private:
  std::vector<Piece> pieces_;
};

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

/// A matrix product of 16-bit operands by fp32 products, for processors without code for the type.
///
/// Two of the three matrices contain the longest dimension. They are converted a panel of it at a
/// time, small enough to stay in cache until it is used; the third is converted as a whole, so the
/// workspace does not grow with the longest dimension. Sums are kept in fp32 and rounded once.
class PanelProduct {
 public:
  explicit PanelProduct(const MatmulShape& shape)
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

  [[nodiscard]] std::size_t workspace_bytes() const {
    std::size_t scratchpad = whole_.scratchpad_bytes();
    if (later_) scratchpad = std::max(scratchpad, later_->scratchpad_bytes());
    if (rest_) scratchpad = std::max(scratchpad, rest_->scratchpad_bytes());
    const Copies end = place(nullptr);
    return reinterpret_cast<std::size_t>(end.scratchpad) + scratchpad;
  }

  /// `workspace` is aligned.
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) {
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

 private:
  enum class Along { m, n, k };

  /// Part of a stored matrix: every row, or every column, or a panel of them.
  struct Region {
    std::int64_t first_row, first_column, rows, columns, stride;
    [[nodiscard]] std::int64_t offset() const { return first_row * stride + first_column; }
    [[nodiscard]] std::int64_t count() const { return rows * columns; }
  };
  /// Where the fp32 copies lie.
  struct Copies {
    float *a, *b, *c, *bias;
    void* scratchpad;
  };

  [[nodiscard]] Region region_a(std::int64_t first, std::int64_t count) const {
    const std::int64_t stride = shape_.row_of_a();
    return shape_.transpose_a ? region(Along::k, Along::m, stride, first, count)
                              : region(Along::m, Along::k, stride, first, count);
  }
  [[nodiscard]] Region region_b(std::int64_t first, std::int64_t count) const {
    return shape_.transpose_b ? region(Along::n, Along::k, shape_.k, first, count)
                              : region(Along::k, Along::n, shape_.n, first, count);
  }
  [[nodiscard]] Region region_c(std::int64_t first, std::int64_t count) const {
    return region(Along::m, Along::n, shape_.row_of_c(), first, count);
  }
  /// Of a matrix with these dimensions the panel of `count` from `first` on, or all of it where it
  /// does not contain the longest one.
  [[nodiscard]] Region region(Along rows, Along columns, std::int64_t stride, std::int64_t first,
                              std::int64_t count) const {
    if (along_ == rows) return {first, 0, count, size(columns), stride};
    if (along_ == columns) return {0, first, size(rows), count, stride};
    return {0, 0, size(rows), size(columns), stride};
  }
  [[nodiscard]] std::int64_t size(Along dimension) const {
    return dimension == Along::m ? shape_.m : dimension == Along::n ? shape_.n : shape_.k;
  }

  [[nodiscard]] Copies place(void* workspace) const {
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

  /// The fp32 product of one panel; along k, the `later` ones add to what the first has begun.
  [[nodiscard]] DirectProduct panel(std::int64_t count, bool later) const {
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

  /// The one of the panel that begins at `first`.
  [[nodiscard]] DirectProduct& product_of(std::int64_t first) {
    if (length_ - first < step_) return *rest_;
    return first > 0 && later_ ? *later_ : whole_;
  }

  MatmulShape shape_;
  Along along_;
  std::int64_t length_;  ///< of the longest dimension
  std::int64_t step_;    ///< of a panel
  DirectProduct whole_;  ///< of a whole panel
  /// Along k, of the panels after the first, which add to it.
  std::optional<DirectProduct> later_;
  /// Of what is left over at the end, where it is less than a panel.
  std::optional<DirectProduct> rest_;
};

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
    if (direct_) return direct_->run(a, b, bias, c, aligned);
    panels_->run(a, b, bias, c, aligned);
  }

 private:
  std::optional<DirectProduct> direct_;
  std::optional<PanelProduct> panels_;
};

/// A shape and a number of threads, which oneDNN fixes when it builds a primitive.
using Key = std::pair<MatmulShape, int>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const auto& [shape, threads] = key;
    const auto flags = static_cast<std::uint64_t>(
        shape.transpose_a | shape.transpose_b << 1 | shape.accumulate << 2 | shape.has_bias << 3 |
        static_cast<int>(shape.type) << 4 | static_cast<int>(shape.out_type) << 6);
    std::uint64_t hash = counter_hash(flags, static_cast<std::uint64_t>(threads), 0);
    for (const std::int64_t part : {shape.m, shape.n, shape.k, shape.row_of_a(), shape.row_of_c()})
      hash = counter_hash(hash, static_cast<std::uint64_t>(part), 1);
    return hash;
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

}  // namespace dstune::kernels
