#include "sections/names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include <fmt/format.h>

namespace dstune {

namespace {

using Kind = Dimension::Kind;
using Keys = std::vector<std::string>;

constexpr std::string_view micro_batch_name = "train_micro_batch_size_per_gpu";
constexpr std::string_view accumulation_key = "gradient_accumulation_steps";
constexpr const char* zero_pointer = "/zero_optimization";
constexpr const char* stage_place = "/zero_optimization/stage";

bool has(const Keys& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Keys and values as DeepSpeed writes them.

/// First letters of the parts between underscores.
std::string acronym(const std::string& key) {
  std::string letters;
  for (std::size_t at = 0; at < key.size(); ++at) {
    if (key[at] != '_' && (at == 0 || key[at - 1] == '_')) letters += key[at];
  }
  return letters;
}

/// Writes a value as Python's str() does.
std::string python_text(const json::Value& value, bool is_nested = false) {
  if (value.is_null()) return "None";
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_nested ? "'" + text + "'" : text;
  }
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, element] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += "'" + key + "': ";
    text += python_text(element, true);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string number_text(double value) {
  return fmt::format("{:.1e}", value);
}

std::string value_text(const json::Value& value) {
  if (value.is_boolean()) return value.get<bool>() ? "T" : "F";
  if (value.is_number() && value.get<double>() > 9000) return number_text(value.get<double>());
  return python_text(value);
}

/// The letters of an offload section, whose settings all stand in a name; "" of another key.
std::string letters_of_section(std::string_view key) {
  if (key == "offload_param") return "op";
  if (key == "offload_optimizer") return "oo";
  return "";
}

std::string offload_setting(const std::string& key, const json::Value& value) {
  return acronym(key) + value_text(value) + "_";
}

/// "oo_", then every setting of the section whatever the keys are.
std::string offload_text(const json::Value& section, const std::string& letters, bool omit_values) {
  std::string text = letters + "_";
  if (omit_values) return text;
  if (!section.is_object()) return text + python_text(section) + "_";
  for (const auto& [key, value] : section.items()) text += offload_setting(key, value);
  return text;
}

/// The part that one key of a config adds to its canonical name, with a closing "_" if it is not
/// empty.
std::string canonical_part(const std::string& key, const json::Value& value, const Keys& keys,
                           bool omit_values) {
  if (key == "arg_mappings") return "";
  if (const auto letters = letters_of_section(key); !letters.empty())
    return offload_text(value, letters, omit_values);
  if (value.is_object()) {
    std::string parts;
    for (const auto& [inner, member] : value.items())
      parts += canonical_part(inner, member, keys, omit_values);
    return parts;
  }
  const bool is_named = key == micro_batch_name || key == accumulation_key || has(keys, key);
  return is_named ? acronym(key) + (omit_values ? "" : value_text(value)) + "_" : "";
}

// Names that are safe, and true.

constexpr std::size_t longest = 160;

/// FNV-1a, since names that are on disk keep it.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

std::string with_safe_letters(std::string text) {
  for (char& c : text) {
    const bool is_kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                         std::string_view(".+-_=").find(c) != std::string_view::npos;
    if (!is_kept) c = '-';
  }
  return text;
}

std::string last_part(const std::string& pointer) {
  return pointer.substr(pointer.rfind('/') + 1);
}

/// The letters of the offload section that a place lies in; "" outside of them.
std::string letters_around(const std::string& pointer) {
  for (std::size_t end = pointer.rfind('/'); end != std::string::npos && end > 0;
       end = pointer.rfind('/', end - 1)) {
    const auto letters = letters_of_section(last_part(pointer.substr(0, end)));
    if (!letters.empty()) return letters;
  }
  return "";
}

/// Keys of what differs: those inside candidates that are objects, else the dimension's own.
void add_keys(const Dimension& dimension, Keys& keys) {
  const auto add = [&](const std::string& key) {
    if (key != "stage" && !has(keys, key)) keys.push_back(key);
  };
  add(last_part(dimension.pointer));
  for (const auto& candidate : dimension.candidates) {
    if (!candidate.is_object()) continue;
    for (const auto& [key, value] : candidate.items()) add(key);
  }
}

bool names_itself(const Dimension& dimension) {
  if (dimension.candidates.size() == 1) return false;
  return dimension.kind == Kind::train_batch_size ||
         (dimension.kind == Kind::knob && dimension.pointer != stage_place);
}

/// The stage that stands at the beginning of a member's name by this candidate.
double stage_in(const Dimension& dimension, const json::Value& candidate) {
  const json::Value* stage = nullptr;
  if (dimension.pointer == stage_place) stage = &candidate;
  if (dimension.pointer == zero_pointer && candidate.is_object() && candidate.contains("stage"))
    stage = &candidate.at("stage");
  return stage != nullptr && stage->is_number() ? stage->get<double>() : 0;
}

}  // namespace

/// The places in the candidates of a product's dimensions, and how a name says what stands there.
/// Each has a label that no other one has, and different texts for different values.
class VariedPlaces {
 public:
  /// `keys`: the keys that DeepSpeed names whether their values differ or not.
  VariedPlaces(const Product& product, const Keys& keys) {
    for (const Dimension& dimension : product.dimensions) {
      if (dimension.kind != Kind::knob || dimension.candidates.size() == 1) continue;
      for (const auto& candidate : dimension.candidates)
        add(dimension.pointer, candidate, dimension.candidates.size());
    }
    std::erase_if(places_, [&](const auto& entry) {
      const auto& [pointer, place] = entry;
      const bool varies = place.values.size() > 1 || place.num_values < place.num_candidates;
      const std::string key = last_part(pointer);
      return pointer == stage_place ||
             (!varies && !has(keys, key) && letters_around(pointer).empty());
    });
    label();
    for (auto& [pointer, place] : places_) write_values(place);
  }

  /// The text that each candidate of a dimension adds to a name, with a closing "_" if not empty.
  [[nodiscard]] std::vector<std::string> texts(const Dimension& dimension) const {
    std::vector<std::string> texts;
    std::map<std::string, std::vector<std::size_t>> alike;
    for (const auto& candidate : dimension.candidates) {
      std::string text = text_of(dimension.pointer, candidate);
      auto& others =
          alike[fmt::format("{}{}", stage_in(dimension, candidate), with_safe_letters(text))];
      const auto equal = std::find_if(others.begin(), others.end(), [&](std::size_t other) {
        return dimension.candidates[other] == candidate;
      });
      if (equal != others.end())
        text = texts[*equal];
      else if (!others.empty())
        text += fmt::format("{:08x}_", hash_of(candidate.dump()) & 0xffffffffU);
      others.push_back(texts.size());
      texts.push_back(std::move(text));
    }
    return texts;
  }

 private:
  struct Place {
    std::vector<json::Value> values;  ///< different ones
    std::vector<std::string> texts;   ///< of each
    std::size_t num_values = 0;       ///< candidates that have the place
    std::size_t num_candidates = 0;
    std::string label;
  };

  void add(const std::string& pointer, const json::Value& value, std::size_t num_candidates) {
    if (value.is_object()) {
      for (const auto& [key, member] : value.items())
        add(json::append_pointer(pointer, key), member, num_candidates);
      return;
    }
    Place& place = places_[pointer];
    place.num_candidates = num_candidates;
    ++place.num_values;
    if (std::find(place.values.begin(), place.values.end(), value) == place.values.end())
      place.values.push_back(value);
  }

  /// DeepSpeed's letters; where several places have them, the whole key; else the whole path.
  static std::array<std::string, 3> labels_of(const std::string& pointer) {
    const std::string key = last_part(pointer);
    const std::string section = letters_of_section(key);
    std::string path = pointer.substr(1) + "=";
    std::replace(path.begin(), path.end(), '/', '.');
    return {section.empty() ? acronym(key) : section + "_", key + "=", path};
  }

  void label() {
    // The number of places that a label has, by the offload section around them. Nothing tells
    // where a section ends, so that it shares its labels with the places outside of sections.
    std::map<std::string, std::map<std::string, int>> counts;
    for (const auto& [key, kind] : batch_keys) ++counts[acronym(std::string(key))][""];
    for (const auto& [pointer, place] : places_)
      for (const auto& label : labels_of(pointer)) ++counts[label][letters_around(pointer)];
    const auto is_alone = [&](const std::string& label, const std::string& section) {
      int others = 0;
      for (const auto& [around, count] : counts[label])
        if (section.empty() || around.empty() || around == section) others += count;
      return others == 1;
    };
    for (auto& [pointer, place] : places_) {
      const auto labels = labels_of(pointer);
      place.label = *std::find_if(labels.begin(), labels.end() - 1, [&](const auto& one) {
        return is_alone(one, letters_around(pointer));
      });
    }
  }

  static void write_values(Place& place) {
    const auto write = [&](const auto& text_of_value) {
      place.texts.clear();
      std::vector<std::string> safe;
      for (const auto& value : place.values) {
        place.texts.push_back(text_of_value(value));
        safe.push_back(with_safe_letters(place.texts.back()));
      }
      std::sort(safe.begin(), safe.end());
      return std::adjacent_find(safe.begin(), safe.end()) == safe.end();
    };
    const auto briefly = [](const auto& value) { return value_text(value); };
    if (!write(briefly) && !write([](const auto& value) { return python_text(value, true); }))
      write(briefly);
  }

  [[nodiscard]] std::string text_of(const std::string& pointer, const json::Value& value) const {
    if (value.is_object()) {
      const std::string letters = letters_of_section(last_part(pointer));
      std::string text = letters.empty() ? "" : letters + "_";
      for (const auto& [key, member] : value.items())
        text += text_of(json::append_pointer(pointer, key), member);
      return text;
    }
    const auto found = places_.find(pointer);
    if (found == places_.end()) return "";
    const Place& place = found->second;
    const auto index =
        std::find(place.values.begin(), place.values.end(), value) - place.values.begin();
    return place.label + place.texts[static_cast<std::size_t>(index)] + "_";
  }

  std::map<std::string, Place> places_;
};

std::string canonical_name(const json::Value& config, const std::vector<std::string>& keys,
                           const std::string& prefix, bool omit_values) {
  std::string name = canonical_part("", config, keys, omit_values);
  if (name.empty()) return prefix + "exp";
  name.pop_back();
  return prefix + name;
}

std::string folder_safe(const std::string& name) {
  std::string safe = with_safe_letters(name);
  if (safe.size() <= longest) return safe;
  return fmt::format("{}_{:016x}", safe.substr(0, longest), hash_of(name));
}

namespace {

/// Sizes whose short texts would be equal, or may be, since some follow from other sizes.
bool needs_digits(const Dimension& sizes) {
  std::map<std::string, std::int64_t> of_text;
  for (std::size_t index = 0; index < sizes.candidates.size(); ++index) {
    const auto size = size_of(sizes, index);
    if (!size) return sizes.candidates.size() > 1;
    const auto [known, is_new] = of_text.try_emplace(value_text(*size), *size);
    if (known->second != *size) return true;
  }
  return false;
}

}  // namespace

NameTemplate::NameTemplate(const Product& product, bool with_shape, bool with_recompute) {
  Keys keys;
  for (const auto& dimension : product.dimensions) {
    if (names_itself(dimension)) {
      is_short_ = false;
      add_keys(dimension, keys);
    }
    if (dimension.kind == Kind::shape && with_shape) add_shapes(dimension);
    if (dimension.kind == Kind::recompute && with_recompute)
      for (const auto& mode : dimension.candidates)
        recomputes_.push_back("_ar" + mode.get<std::string>());
  }
  const VariedPlaces places(product, keys);
  for (const auto& [key, value] : product.base.items())
    add_parts(product, places, json::append_pointer("", key), value, keys);
}

void NameTemplate::add_shapes(const Dimension& shapes) {
  const auto nodes = [](const json::Value& shape) { return shape.at("num_nodes").get<int>(); };
  const auto ranks = [&](const json::Value& shape) {
    return shape.at("num_gpus").get<int>() * nodes(shape);
  };
  for (const auto& shape : shapes.candidates) {
    const bool is_alone = std::all_of(
        shapes.candidates.begin(), shapes.candidates.end(),
        [&](const auto& other) { return ranks(other) != ranks(shape) || other == shape; });
    shapes_.push_back(fmt::format("_ng{}", ranks(shape)));
    if (!is_alone) shapes_.back() += fmt::format("_nn{}", nodes(shape));
  }
}

void NameTemplate::add_fixed(const std::string& text) {
  if (text.empty()) return;
  if (parts_.empty() || parts_.back().kind != Kind::knob || parts_.back().dimension >= 0)
    parts_.push_back({Kind::knob, -1, {""}});
  parts_.back().texts.front() += text;
}

void NameTemplate::add_parts(const Product& product, const VariedPlaces& places,
                             const std::string& pointer, const json::Value& value,
                             const Keys& keys) {
  const auto& dimensions = product.dimensions;
  const auto varies = [&](const Dimension& dimension) {
    return !dimension.pointer.empty() &&
           (dimension.kind != Kind::knob || dimension.candidates.size() > 1);
  };
  const std::string key = last_part(pointer);
  const auto found = std::find_if(dimensions.begin(), dimensions.end(), [&](const Dimension& one) {
    return varies(one) && one.pointer == pointer;
  });
  if (found != dimensions.end()) {
    Part part{found->kind, static_cast<int>(found - dimensions.begin()), {}};
    if (found->kind == Kind::knob) {
      part.texts = places.texts(*found);
    } else {
      part.texts.push_back(canonical_part(key, nullptr, keys, true));
      if (part.texts.front().empty()) return;
      part.texts.front().pop_back();
      part.is_exact = needs_digits(*found);
    }
    parts_.push_back(std::move(part));
    return;
  }
  const bool is_above = std::any_of(
      dimensions.begin(), dimensions.end(),
      [&](const Dimension& one) { return varies(one) && one.pointer.starts_with(pointer + "/"); });
  if (is_above) {
    if (const auto letters = letters_of_section(key); !letters.empty()) add_fixed(letters + "_");
    for (const auto& [inner, member] : value.items())
      add_parts(product, places, json::append_pointer(pointer, inner), member, keys);
  } else {
    add_fixed(letters_around(pointer).empty() ? canonical_part(key, value, keys, false)
                                              : offload_setting(key, value));
  }
}

std::string NameTemplate::name(const std::vector<std::size_t>& digits, int zero_stage,
                               const BatchTriple& batch) const {
  std::string name = fmt::format("z{}_", zero_stage);
  if (is_short_) {
    name += fmt::format("gas{}_tmbspg{}", batch.accumulation_steps, batch.micro_batch);
  } else {
    const auto append_size = [&](const Part& part, std::int64_t size) {
      // The number is written as canonical_part() does.
      name += part.texts.front();
      name += size > 9000 && !part.is_exact ? number_text(static_cast<double>(size))
                                            : fmt::format("{}", size);
      name += '_';
    };
    for (const Part& part : parts_) {
      if (part.kind == Kind::train_batch_size) {
        append_size(part, batch.train_batch_size);
      } else if (part.kind == Kind::micro_batch) {
        append_size(part, batch.micro_batch);
      } else if (part.kind == Kind::accumulation_steps) {
        append_size(part, batch.accumulation_steps);
      } else {
        const std::size_t digit =
            part.dimension < 0 ? 0 : digits[static_cast<std::size_t>(part.dimension)];
        name += part.texts[digit];
      }
    }
    name.pop_back();
  }
  if (!shapes_.empty()) name += shapes_[digits.front()];
  if (!recomputes_.empty()) name += recomputes_[digits.back()];
  return folder_safe(name);
}

}  // namespace dstune
