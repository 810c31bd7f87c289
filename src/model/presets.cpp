#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {
namespace {

/// The published config.json of each, in what differs.
struct Gpt2Row {
  std::string_view name;
  std::int64_t hidden, layers, heads;
};
constexpr std::array gpt2_rows{
    Gpt2Row{"distilgpt2", 768, 6, 12},    Gpt2Row{"gpt2", 768, 12, 12},
    Gpt2Row{"gpt2-medium", 1024, 24, 16}, Gpt2Row{"gpt2-large", 1280, 36, 20},
    Gpt2Row{"gpt2-xl", 1600, 48, 25},
};

struct LlamaRow {
  std::string_view name;
  std::int64_t hidden, layers, heads, kv_heads, intermediate, vocab, positions;
  double epsilon, theta;
};
constexpr std::array llama_rows{
    LlamaRow{"tinyllama-1.1b", 2048, 22, 32, 4, 5632, 32000, 2048, 1e-5, 1e4},
    LlamaRow{"llama-7b", 4096, 32, 32, 32, 11008, 32000, 2048, 1e-6, 1e4},
    LlamaRow{"llama-13b", 5120, 40, 40, 40, 13824, 32000, 2048, 1e-6, 1e4},
    LlamaRow{"llama-30b", 6656, 60, 52, 52, 17920, 32000, 2048, 1e-6, 1e4},
    LlamaRow{"llama-65b", 8192, 80, 64, 64, 22016, 32000, 2048, 1e-5, 1e4},
    LlamaRow{"llama-2-7b", 4096, 32, 32, 32, 11008, 32000, 4096, 1e-5, 1e4},
    LlamaRow{"llama-2-13b", 5120, 40, 40, 40, 13824, 32000, 4096, 1e-5, 1e4},
    LlamaRow{"llama-2-70b", 8192, 80, 64, 8, 28672, 32000, 4096, 1e-5, 1e4},
    LlamaRow{"llama-3-8b", 4096, 32, 32, 8, 14336, 128256, 8192, 1e-5, 5e5},
    LlamaRow{"llama-3-70b", 8192, 80, 64, 8, 28672, 128256, 8192, 1e-5, 5e5},
};

ModelSpec from_row(const Gpt2Row& row) {
  return {.name = std::string(row.name),
          .family = ModelFamily::gpt2,
          .hidden_size = row.hidden,
          .num_layers = row.layers,
          .num_heads = row.heads,
          .num_kv_heads = row.heads,
          .head_size = row.hidden / row.heads,
          .intermediate_size = 4 * row.hidden,
          .vocab_size = 50257,
          .max_positions = 1024,
          .tie_embeddings = true,
          .norm_epsilon = 1e-5,
          .dropout = 0.1};
}

ModelSpec from_row(const LlamaRow& row) {
  return {.name = std::string(row.name),
          .family = ModelFamily::llama,
          .hidden_size = row.hidden,
          .num_layers = row.layers,
          .num_heads = row.heads,
          .num_kv_heads = row.kv_heads,
          .head_size = row.hidden / row.heads,
          .intermediate_size = row.intermediate,
          .vocab_size = row.vocab,
          .max_positions = row.positions,
          .tie_embeddings = false,
          .norm_epsilon = row.epsilon,
          .rope_theta = row.theta,
          .architecture = architecture_of(ModelFamily::llama)};
}

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  names.reserve(gpt2_rows.size() + llama_rows.size());
  for (const Gpt2Row& row : gpt2_rows) names.push_back(row.name);
  for (const LlamaRow& row : llama_rows) names.push_back(row.name);
  return names;
}

ModelSpec preset(std::string_view name) {
  for (const Gpt2Row& row : gpt2_rows)
    if (row.name == name) return from_row(row);
  for (const LlamaRow& row : llama_rows)
    if (row.name == name) return from_row(row);
  throw InputError({Problem{{},
                            {},
                            0,
                            fmt::format("there is no model preset \"{}\"; there are {}", name,
                                        fmt::join(preset_names(), ", "))}});
}

}  // namespace dstune
