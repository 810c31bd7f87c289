#pragma once
/// A list of large values that stay packed until somebody looks at them. Local; for one thread at a
/// time, reading included.

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace dstune {

/// How the values of a list are kept while nobody looks at them.
template <class Value>
class Packing {
 public:
  Packing() = default;
  virtual ~Packing() = default;
  Packing(const Packing&) = default;
  Packing& operator=(const Packing&) = default;

  [[nodiscard]] virtual std::unique_ptr<Packing> copy() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual Value unpack(std::size_t place) const = 0;
  /// Takes what may have changed of an unpacked value.
  virtual void pack(std::size_t place, const Value& value) = 0;
};

/// A value is packed, or open: an object of its own, which stays where it is. A look by place opens
/// it for good. A walk over the list opens one value after the other and packs each again.
template <class Value>
class PackedList {
  template <bool is_const>
  class Walk;

 public:
  using value_type = Value;
  using iterator = Walk<false>;
  using const_iterator = Walk<true>;

  PackedList() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a list is given where a vector was.
  PackedList(std::vector<Value> values) {
    for (Value& value : values) push_back(std::move(value));
  }
  PackedList(std::initializer_list<Value> values) : PackedList(std::vector<Value>(values)) {}
  /// All of its values are packed.
  explicit PackedList(std::unique_ptr<Packing<Value>> packing)
      : packing_(std::move(packing)), values_(packing_->size()) {}
  ~PackedList() = default;
  PackedList(PackedList&&) noexcept = default;
  PackedList& operator=(PackedList&&) noexcept = default;
  PackedList(const PackedList& other)
      : packing_(other.packing_ ? other.packing_->copy() : nullptr),
        values_(other.values_.size()),
        open_places_(other.open_places_) {
    for (std::size_t place = 0; place < values_.size(); ++place)
      if (other.values_[place]) values_[place] = std::make_unique<Value>(*other.values_[place]);
  }
  PackedList& operator=(const PackedList& other) {
    if (this != &other) *this = PackedList(other);
    return *this;
  }

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] bool empty() const { return values_.empty(); }

  /// Opens the value for good.
  [[nodiscard]] Value& operator[](std::size_t place) { return open(place); }
  [[nodiscard]] const Value& operator[](std::size_t place) const { return open(place); }
  [[nodiscard]] Value& front() { return open(0); }
  [[nodiscard]] const Value& front() const { return open(0); }
  [[nodiscard]] Value& back() { return open(size() - 1); }
  [[nodiscard]] const Value& back() const { return open(size() - 1); }

  /// A list without a packing has all of its values open.
  void push_back(Value value) { emplace_back(std::move(value)); }
  template <class... Arguments>
  Value& emplace_back(Arguments&&... arguments) {
    auto value = std::make_unique<Value>(std::forward<Arguments>(arguments)...);
    if (packing_) open_places_.insert(size());
    return *values_.emplace_back(std::move(value));
  }
  void clear() { *this = {}; }

  /// The value where it is open, else null: nothing is opened.
  [[nodiscard]] const Value* opened(std::size_t place) const { return values_[place].get(); }
  [[nodiscard]] Value* opened(std::size_t place) { return values_[place].get(); }
  /// A copy of the value: nothing is opened.
  [[nodiscard]] Value copy_of(std::size_t place) const {
    return values_[place] ? *values_[place] : packing_->unpack(place);
  }
  /// Visits the open values in order: (place, value).
  template <class Visitor>
  void visit_open(Visitor&& visitor) const {
    if (packing_) {
      for (const std::size_t place : open_places_) visitor(place, std::as_const(*values_[place]));
    } else {
      for (std::size_t place = 0; place < size(); ++place)
        visitor(place, std::as_const(*values_[place]));
    }
  }
  /// Tells whether all values are open.
  [[nodiscard]] bool is_open() const { return !packing_; }
  [[nodiscard]] std::size_t num_open() const { return packing_ ? open_places_.size() : size(); }
  [[nodiscard]] const Packing<Value>* packing() const { return packing_.get(); }
  [[nodiscard]] Packing<Value>* packing() { return packing_.get(); }

  // A reference from a walk is valid until its iterator goes on.
  [[nodiscard]] iterator begin() { return {this, 0}; }
  [[nodiscard]] iterator end() { return {this, size()}; }
  [[nodiscard]] const_iterator begin() const { return {this, 0}; }
  [[nodiscard]] const_iterator end() const { return {this, size()}; }

 private:
  [[nodiscard]] Value& open(std::size_t place) const {
    std::unique_ptr<Value>& value = values_[place];
    if (!value) {
      value = std::make_unique<Value>(packing_->unpack(place));
      open_places_.insert(place);
    }
    return *value;
  }

  std::unique_ptr<Packing<Value>> packing_;  ///< null: all values are open
  mutable std::vector<std::unique_ptr<Value>> values_;
  mutable std::set<std::size_t> open_places_;  ///< where there is a packing
};

template <class Value>
template <bool is_const>
class PackedList<Value>::Walk {
  using List = std::conditional_t<is_const, const PackedList, PackedList>;

 public:
  using iterator_concept = std::input_iterator_tag;
  using iterator_category = std::input_iterator_tag;
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using pointer = std::conditional_t<is_const, const Value*, Value*>;
  using reference = std::conditional_t<is_const, const Value&, Value&>;

  Walk() = default;
  Walk(List* list, std::size_t place) : list_(list), place_(place) {}
  ~Walk() { leave(); }
  Walk(const Walk& other) : list_(other.list_), place_(other.place_) {}
  Walk(Walk&& other) noexcept = default;
  Walk& operator=(const Walk& other) {
    if (this == &other) return *this;
    leave();
    list_ = other.list_;
    place_ = other.place_;
    return *this;
  }
  Walk& operator=(Walk&& other) noexcept {
    leave();
    list_ = other.list_;
    place_ = other.place_;
    unpacked_ = std::move(other.unpacked_);
    return *this;
  }

  reference operator*() const {
    if (const auto& value = list_->values_[place_]) return *value;
    if (!unpacked_) unpacked_ = std::make_unique<Value>(list_->packing_->unpack(place_));
    return *unpacked_;
  }
  pointer operator->() const { return &**this; }
  Walk& operator++() {
    leave();
    ++place_;
    return *this;
  }
  Walk operator++(int) {
    const Walk before = *this;
    ++*this;
    return before;
  }
  [[nodiscard]] Walk operator+(difference_type places) const {
    return {list_, static_cast<std::size_t>(static_cast<difference_type>(place_) + places)};
  }
  [[nodiscard]] difference_type operator-(const Walk& other) const {
    return static_cast<difference_type>(place_) - static_cast<difference_type>(other.place_);
  }
  bool operator==(const Walk& other) const { return place_ == other.place_; }

 private:
  void leave() {
    if constexpr (!is_const)
      if (unpacked_ && !list_->values_[place_]) list_->packing_->pack(place_, *unpacked_);
    unpacked_.reset();
  }

  List* list_ = nullptr;
  std::size_t place_ = 0;
  mutable std::unique_ptr<Value> unpacked_;
};

}  // namespace dstune
