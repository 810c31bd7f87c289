#pragma once
/// Reading models: what every way of describing one has in common, and values of a Hugging Face
/// config by key, with transformers' own defaults and refusals that name the key, its value, and
/// what is built instead.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/model/model_spec.hpp"

namespace dstune::model {

/// "gpt2-124M"
[[nodiscard]] std::string sized_name(const ModelSpec& spec);
/// Adds a problem at `node` where heads do not fit each other or the family.
void check_shape(const ModelSpec& spec, const json::Node& node, json::Problems& problems);
/// hidden_size / num_heads; a problem where it has a remainder.
std::int64_t head_size_of(std::int64_t hidden_size, std::int64_t num_heads, const json::Node& node,
                          json::Problems& problems);

/// Largest size of any dimension: products of four of them stay far from overflow.
inline constexpr std::int64_t largest_size = 1'000'000;

/// More bytes than training takes a parameter anywhere, all copies and sums together.
inline constexpr std::int64_t most_bytes_of_parameter = 64;

/// A Hugging Face config; null stands for absent.
class Config {
 public:
  Config(const json::Node& node, json::Problems& problems) : node_(node), problems_(problems) {}

  using Names = std::initializer_list<const char*>;

  /// The first of the names that is there: transformers accepts a common name for each of gpt2's.
  [[nodiscard]] std::optional<json::Node> find(Names names) const;
  [[nodiscard]] std::int64_t size(Names names, std::int64_t fallback) const;
  [[nodiscard]] double number(Names names, double fallback, double low, double high) const;
  [[nodiscard]] bool boolean(const char* name, bool fallback) const;
  /// The largest of the dropout probabilities; each has a default.
  [[nodiscard]] double dropout(
      std::initializer_list<std::pair<const char*, double>> probabilities) const;
  /// hidden_size / heads where the config does not give it.
  [[nodiscard]] std::int64_t head_size(const ModelSpec& spec) const;

  /// A switch that only one position is built of.
  void only(const char* name, bool built) const;
  /// The value of one of these names; else a problem at `at`, where `what` is to be one of them.
  [[nodiscard]] std::optional<int> value_of(std::span<const EnumText> names, std::string_view word,
                                            const json::Node& at, std::string_view what) const;
  /// An activation that is built.
  [[nodiscard]] Activation activation(const char* name, Activation fallback) const;
  /// SwiGLU's: silu.
  void only_silu(const char* name) const;
  /// rope_scaling of older files, rope_parameters of newer ones: theta, the part of a head that is
  /// rotated, and how frequencies are scaled. After the sizes.
  void read_rope(ModelSpec& spec) const;
  /// layer_types: where it is given, which layers have a sliding window; other kinds than that and
  /// full attention are refused.
  [[nodiscard]] std::optional<std::vector<bool>> sliding_layers(std::int64_t num_layers) const;
  /// A head other than the one that is built, quantised weights.
  void refuse_other_models() const;

  void refuse(const json::Node& at, std::string message) const {
    problems_.add(at.problem(std::move(message)));
  }
  [[nodiscard]] const json::Node& node() const { return node_; }
  [[nodiscard]] json::Problems& problems() const { return problems_; }

 private:
  json::Node node_;
  json::Problems& problems_;
};

/// Each imports one family; sizes that do not fit each other are found later.
ModelSpec import_gpt2(const Config& config);
ModelSpec import_opt(const Config& config);
ModelSpec import_gpt_neox(const Config& config);
ModelSpec import_bert(const Config& config);
ModelSpec import_falcon(const Config& config);
/// llama, mistral, phi3, qwen2, qwen3, olmo2.
ModelSpec import_llama_like(const Config& config, ModelFamily family);
ModelSpec import_smollm3(const Config& config);
ModelSpec import_granite(const Config& config);
/// gemma2, gemma3_text.
ModelSpec import_gemma(const Config& config, ModelFamily family);
/// Sets what Gemma's configs may leave out: the heads' size, windows, the angles of their layers.
void set_gemma_layers(ModelSpec& spec);

/// SmolLM 3 leaves every `interval`-th layer without rotation.
[[nodiscard]] std::vector<std::int64_t> every_nth_layer(std::int64_t num_layers,
                                                        std::int64_t interval);
/// Refuses keys of a config that act in other families, and in this one are not read by
/// transformers.
void refuse_foreign_keys(const Config& config, const ModelSpec& spec);

}  // namespace dstune::model
