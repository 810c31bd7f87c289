#pragma once
/// An operation of a plan says about itself its traits, and the elements that it accesses. The
/// executor, the time model, memory's timeline and the tests' replay of plans follow from it. All
/// functions: Local.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace dstune {

using TensorId = std::int32_t;
inline constexpr TensorId no_tensor = -1;

/// A place inside a tensor.
struct View {
  TensorId tensor = no_tensor;
  std::int64_t offset_elements = 0;
  [[nodiscard]] explicit operator bool() const { return tensor != no_tensor; }
  bool operator==(const View&) const = default;
};

/// copy: of activations to the host's memory and back.
enum class Stream : std::uint8_t { compute, reduce, gather, host, copy, disk_read, disk_write };
inline constexpr int num_streams = 7;
enum class Phase : std::uint8_t { forward, backward, update };

/// The part of the machine that runs an operation.
enum class OperationKind : std::uint8_t {
  order,       ///< lifetimes, events and phases, which take no time
  arithmetic,  ///< a kernel
  copy,        ///< the device's queues
  disk,        ///< the disk's threads
  collective,  ///< the group
  exchange,    ///< the hosts of the group, which tell each other numbers of the step
};

/// Operations of one kind of work take times on the same curves. In brackets: what `width`, `depth`
/// and `size` of a Work count.
enum class WorkKind : std::uint8_t {
  tokens,              ///< making a micro-batch [–, –, tokens]
  fill,                ///< [–, –, elements]
  fill_normal,         ///< [–, –, elements]
  embedding_forward,   ///< [hidden, –, tokens]
  embedding_backward,  ///< [hidden, vocabulary, tokens]
  norm_forward,        ///< [hidden, –, tokens]
  norm_backward,       ///< likewise
  matmul,              ///< the two sizes that are the model's, then the one that counts tokens
  matmul_activation_forward,   ///< likewise [columns of the result, terms of a sum, rows]
  matmul_activation_backward,  ///< likewise
  matmul_bias_backward,        ///< [rows of the result, its columns, terms of a sum]
  bias_backward,               ///< [columns, –, rows]
  head_norm_forward,           ///< [head size, heads, tokens]
  head_norm_backward,          ///< likewise
  rotary,                      ///< likewise
  attention_forward,    ///< [sequence, heads · head size, samples]; with a window the sequence
                        ///< that has as many pairs of positions
  attention_backward,   ///< likewise
  activation_forward,   ///< [–, –, elements of the result]
  activation_backward,  ///< likewise
  cross_entropy,        ///< [classes, –, rows]
  add,                  ///< [–, –, elements]: y += x, the memory's speed for 3 streams
  convert,              ///< [–, –, elements]
  copy,                 ///< [–, –, elements]
  disk_read,            ///< [–, –, elements]
  disk_write,           ///< likewise
  reshard,              ///< [–, –, elements]
  sum,                  ///< of losses [–, –, elements]
  squares,              ///< [–, –, elements]
  update,               ///< [–, bytes of master copy and moments, elements]
  quantize,             ///< [bits, –, elements]
  dequantize,           ///< [bits, parts that are added up, elements of the result]
  // Collectives over the group; over parts of it [ranks of a part, distance between two, …].
  all_reduce,      ///< [–, –, bytes of the buffer]
  reduce,          ///< likewise
  reduce_scatter,  ///< [–, –, bytes of all ranks' parts]
  all_gather,      ///< likewise
  all_to_all,      ///< likewise
  exchange,        ///< a few numbers [–, –, 1]
};
inline constexpr int num_work_kinds = static_cast<int>(WorkKind::exchange) + 1;

/// A number of the step that operations add up, for those behind them.
enum class StepSum : std::uint8_t { none, loss, squares };

struct OperationTraits {
  std::string_view name;  ///< where an operation is all of a kind of work, this kind's too
  OperationKind kind;
  std::optional<WorkKind> work = {};  ///< nothing: it takes no time
  StepSum sum = StepSum::none;        ///< that it adds to or reads
  /// The host tells it numbers that it knows only in its step. It can not be recorded then.
  bool takes_numbers_of_step = false;
};

struct Access {
  enum class Kind : std::uint8_t { read, write, update };
  View view;
  std::int64_t elements;  ///< at least so many from the view on
  Kind kind;              ///< update: read, then written
  bool operator==(const Access&) const = default;
  [[nodiscard]] bool reads() const { return kind != Kind::write; }
  [[nodiscard]] bool writes() const { return kind != Kind::read; }
};

/// The work of an operation that passes over `count` elements once: these types tell its cost.
struct Elements {
  View from, to;
  std::int64_t count;
};

/// The accesses of an operation. Views of no tensor are left out.
class AccessList {
 public:
  void read(View view, std::int64_t elements) { add(view, elements, Access::Kind::read); }
  void write(View view, std::int64_t elements) { add(view, elements, Access::Kind::write); }
  void update(View view, std::int64_t elements) { add(view, elements, Access::Kind::update); }
  /// Adds to what is there, or replaces it.
  void accumulate(View view, std::int64_t elements, bool adds) {
    add(view, elements, adds ? Access::Kind::update : Access::Kind::write);
  }
  void transfer(View to, View from, std::int64_t elements) {
    read(from, elements);
    write(to, elements);
  }
  /// Scratch, whose size the backend's libraries tell.
  void workspace(View view) { write(view, 1); }

  [[nodiscard]] const std::vector<Access>& all() const { return all_; }

 private:
  void add(View view, std::int64_t elements, Access::Kind kind) {
    if (view) all_.push_back({view, elements, kind});
  }
  std::vector<Access> all_;
};

/// A run of a parameter in op::Reshard.
struct ReshardPiece {
  std::int64_t slab_offset, elements, shard_offset, shard_elements;
};

/// The sizes that the extents of operations' views follow from, beside their own members.
struct PlanSizes {
  std::int64_t samples, sequence;  ///< of a micro-step
  std::int64_t hidden, vocabulary, heads, kv_heads, head_size;
  int group_size;
  std::span<const ReshardPiece> reshard_pieces;
  [[nodiscard]] std::int64_t tokens() const { return samples * sequence; }
  /// Elements of so many heads for all tokens.
  [[nodiscard]] std::int64_t of_heads(std::int64_t number) const {
    return tokens() * number * head_size;
  }
  [[nodiscard]] std::int64_t qkv() const { return of_heads(heads + 2 * kv_heads); }
};

/// Elements from the first of a matrix to behind its last; stride 0: rows follow each other.
[[nodiscard]] constexpr std::int64_t extent(std::int64_t rows, std::int64_t columns,
                                            std::int64_t stride) {
  return (rows - 1) * (stride > 0 ? stride : columns) + columns;
}

/// Operations whose struct stands in one header.
template <class... Ops>
struct OperationList {};

}  // namespace dstune
