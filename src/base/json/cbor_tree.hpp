#pragma once
/// How ranks' messages become values. Local.

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune::json {

/// Builds the values of CBOR, which tells sizes ahead. The library's own builder takes them one by
/// one, and copies an object's members again and again as it grows.
class CborTree : public nlohmann::json_sax<Value> {
 public:
  explicit CborTree(Value& root) : root_(&root) {}

  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t size) override {
    Value& object = open(Value::object());
    object.get_ref<Value::object_t&>().reserve(sane(size));
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t size) override {
    Value& list = open(Value::array());
    list.get_ref<Value::array_t&>().reserve(sane(size));
    return true;
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  /// A damaged size is not believed.
  static std::size_t sane(std::size_t size) {
    constexpr std::size_t most = 1024;
    return std::min(size, most);
  }
  Value& place(Value&& value) {
    if (open_.empty()) return *root_ = std::move(value);
    Value& inside = *open_.back();
    if (inside.is_array()) return inside.get_ref<Value::array_t&>().emplace_back(std::move(value));
    return inside.get_ref<Value::object_t&>()
        .emplace_back(std::move(key_), std::move(value))
        .second;
  }
  bool add(Value&& value) {
    place(std::move(value));
    return true;
  }
  Value& open(Value&& value) {
    open_.push_back(&place(std::move(value)));
    return *open_.back();
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Value* root_;
  std::string key_;
  std::vector<Value*> open_;  ///< from the outermost on
};

}  // namespace dstune::json
