#include "reference_model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace dstune::test {

using enum ParameterRole;

struct ReferenceModel::Weights {
  const ParameterTable& table;
  const std::vector<double>& values;

  [[nodiscard]] bool has(int unit, ParameterRole role) const { return table.find(unit, role) >= 0; }
  [[nodiscard]] const Parameter& parameter(int unit, ParameterRole role) const {
    return table.all()[static_cast<std::size_t>(table.find(unit, role))];
  }
  [[nodiscard]] const double* row(int unit, ParameterRole role, std::int64_t index = 0) const {
    const Parameter& found = parameter(unit, role);
    return values.data() + found.offset + index * found.columns;
  }
};

namespace {

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <class Rows>
void add_to(Rows& x, const Rows& y, double factor = 1) {
  for (std::size_t t = 0; t < x.size(); ++t)
    for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += factor * y[t][i];
}

/// RMSNorm of so many values, in place.
void norm_run(double* values, std::int64_t count, double epsilon, const double* weight,
              double offset) {
  const double squares = dot(values, values, count);
  const double rstd = 1 / std::sqrt(squares / static_cast<double>(count) + epsilon);
  for (std::int64_t i = 0; i < count; ++i) values[i] *= rstd * (offset + weight[i]);
}

double capped(double x, double cap) {
  return cap > 0 ? cap * std::tanh(x / cap) : x;
}

double log_sum_exp(const std::vector<double>& values) {
  double largest = values.front();
  for (double value : values) largest = std::max(largest, value);
  double sum = 0;
  for (double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

}  // namespace

ReferenceModel::Rows ReferenceModel::embeddings(const Weights& weights,
                                                const std::vector<std::int32_t>& tokens) const {
  const auto width = static_cast<std::size_t>(model_.hidden_size);
  const Architecture& parts = model_.architecture;
  Rows x(tokens.size(), std::vector<double>(width));
  for (std::size_t t = 0; t < x.size(); ++t) {
    const std::int64_t position = static_cast<std::int64_t>(t) + parts.position_offset;
    for (std::size_t i = 0; i < width; ++i) {
      x[t][i] = weights.row(0, token_embedding, tokens[t])[i];
      if (parts.positions == PositionKind::learned)
        x[t][i] += weights.row(0, position_embedding, position)[i];
      if (parts.token_types > 0) x[t][i] += weights.row(0, token_type_embedding)[i];
      x[t][i] *= parts.scaled_embeddings ? std::sqrt(static_cast<double>(width))
                                         : parts.embedding_multiplier;
    }
  }
  if (parts.block != BlockKind::post_norm) return x;
  return norm(weights, 0, embedding_norm_weight, embedding_norm_bias, x);
}

ReferenceModel::Rows ReferenceModel::attention_branch(const Weights& weights, int unit,
                                                      const Rows& x) const {
  Rows qkv = linear(weights, unit, qkv_weight, qkv_bias, x);
  if (model_.architecture.query_key_norm) norm_heads(weights, unit, qkv);
  return linear(weights, unit, projection_weight, projection_bias, attention(unit, std::move(qkv)));
}

ReferenceModel::Rows ReferenceModel::mlp_branch(const Weights& weights, int unit,
                                                const Rows& x) const {
  const Rows hidden = linear(weights, unit, fc_weight, fc_bias, x);
  return linear(weights, unit, fc_projection_weight, fc_projection_bias,
                model_.architecture.gated ? gated(hidden) : activations(hidden));
}

void ReferenceModel::block(const Weights& weights, int unit, Rows& x) const {
  const auto norm1 = [&](const Rows& y) {
    return norm(weights, unit, norm1_weight, norm1_bias, y);
  };
  const auto norm2 = [&](const Rows& y) {
    return norm(weights, unit, norm2_weight, norm2_bias, y);
  };
  const double multiplier = model_.architecture.residual_multiplier;
  switch (model_.architecture.block) {
    case BlockKind::sequential:
      add_to(x, attention_branch(weights, unit, norm1(x)), multiplier);
      add_to(x, mlp_branch(weights, unit, norm2(x)), multiplier);
      return;
    case BlockKind::double_norm:
      add_to(x, norm(weights, unit, branch_norm1_weight, norm1_bias,
                     attention_branch(weights, unit, norm1(x))));
      add_to(x, norm(weights, unit, branch_norm2_weight, norm2_bias,
                     mlp_branch(weights, unit, norm2(x))));
      return;
    case BlockKind::branch_norm:
      add_to(x, norm1(attention_branch(weights, unit, x)));
      add_to(x, norm2(mlp_branch(weights, unit, x)));
      return;
    case BlockKind::parallel: {
      const Rows attended = attention_branch(weights, unit, norm1(x));
      const bool shared = model_.architecture.shared_norm;
      add_to(x, mlp_branch(weights, unit, shared ? norm1(x) : norm2(x)));
      add_to(x, attended);
      return;
    }
    case BlockKind::post_norm:
      add_to(x, attention_branch(weights, unit, x));
      x = norm1(x);
      add_to(x, mlp_branch(weights, unit, x));
      x = norm2(x);
      return;
  }
}

double ReferenceModel::loss(const std::vector<double>& parameters,
                            const std::vector<std::int32_t>& tokens,
                            const std::vector<std::int32_t>& targets) const {
  const Weights weights{table_, parameters};
  const auto layers = static_cast<int>(model_.num_layers);
  const int last = layers + 1;
  Rows x = embeddings(weights, tokens);
  for (int unit = 1; unit <= layers; ++unit) block(weights, unit, x);
  if (model_.architecture.block != BlockKind::post_norm)
    x = norm(weights, last, final_norm_weight, final_norm_bias, x);
  const Rows rows = logits(weights, features(weights, std::move(x)));
  double sum = 0;
  double count = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    if (targets[t] < 0) continue;
    sum += log_sum_exp(rows[t]) - rows[t][static_cast<std::size_t>(targets[t])];
    count += 1;
  }
  return sum / count;
}

ReferenceModel::Rows ReferenceModel::features(const Weights& weights, Rows x) const {
  const int last = static_cast<int>(model_.num_layers) + 1;
  if (model_.architecture.objective == Objective::masked_token) {
    return norm(weights, last, transform_norm_weight, transform_norm_bias,
                activations(linear(weights, last, transform_weight, transform_bias, x)));
  }
  if (model_.architecture.objective != Objective::sequence_class) return x;
  x.resize(1);
  Rows pooled = linear(weights, last, transform_weight, transform_bias, x);
  const bool is_berts = model_.family == ModelFamily::bert;
  for (double& z : pooled.front())
    z = activation(is_berts ? Activation::tanh : Activation::relu, z);
  return pooled;
}

ReferenceModel::Rows ReferenceModel::logits(const Weights& weights, const Rows& features) const {
  const int last = static_cast<int>(model_.num_layers) + 1;
  Rows rows(features.size());
  for (std::size_t t = 0; t < features.size(); ++t) {
    for (std::int64_t each = 0; each < model_.head_rows(); ++each) {
      const double* row = model_.tie_embeddings ? weights.row(0, token_embedding, each)
                                                : weights.row(last, head_weight, each);
      const double bias = weights.has(last, head_bias) ? weights.row(last, head_bias)[each] : 0;
      const double logit = dot(row, features[t].data(), model_.hidden_size) + bias;
      rows[t].push_back(
          capped(logit / model_.architecture.logits_scaling, model_.architecture.logits_softcap));
    }
  }
  if (model_.architecture.objective != Objective::spans) return rows;
  Rows spans(2);
  for (const auto& scores : rows)
    for (std::size_t end = 0; end < 2; ++end) spans[end].push_back(scores[end]);
  return spans;
}

void ReferenceModel::norm_heads(const Weights& weights, int unit, Rows& qkv) const {
  const std::int64_t queries = model_.num_heads * model_.head_size;
  const std::int64_t all = queries + model_.num_kv_heads * model_.head_size;
  const bool spans_heads = model_.architecture.norm_spans_heads;
  for (auto& row : qkv) {
    for (std::int64_t first = 0; first < all;) {
      const bool query = first < queries;
      const std::int64_t end = query ? queries : all;
      const std::int64_t count = spans_heads ? end - first : model_.head_size;
      norm_run(row.data() + first, count, model_.norm_epsilon,
               weights.row(unit, query ? query_norm_weight : key_norm_weight),
               model_.architecture.unit_offset_norm ? 1 : 0);
      first += count;
    }
  }
}

ReferenceModel::Rows ReferenceModel::norm(const Weights& weights, int unit, ParameterRole weight,
                                          ParameterRole bias, const Rows& x) const {
  const bool centred = model_.architecture.norm == NormKind::layer;
  Rows out = x;
  for (auto& row : out) {
    const auto count = static_cast<double>(row.size());
    double mean = 0;
    if (centred) {
      for (double value : row) mean += value / count;
    }
    double variance = 0;
    for (double value : row) variance += (value - mean) * (value - mean) / count;
    const double rstd = 1 / std::sqrt(variance + model_.norm_epsilon);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double offset = model_.architecture.unit_offset_norm ? 1 : 0;
      row[i] = (row[i] - mean) * rstd * (offset + weights.row(unit, weight)[i]);
      if (weights.has(unit, bias)) row[i] += weights.row(unit, bias)[i];
    }
  }
  return out;
}

ReferenceModel::Rows ReferenceModel::linear(const Weights& weights, int unit, ParameterRole weight,
                                            ParameterRole bias, const Rows& x) const {
  const Parameter& matrix = weights.parameter(unit, weight);
  Rows out;
  for (const auto& row : x) {
    auto& result = out.emplace_back();
    for (std::int64_t i = 0; i < matrix.rows; ++i) {
      result.push_back(dot(weights.row(unit, weight, i), row.data(), matrix.columns));
      if (weights.has(unit, bias)) result.back() += weights.row(unit, bias)[i];
    }
  }
  return out;
}

void ReferenceModel::rotate(const RotaryAngles& angles, std::vector<double>& row,
                            std::int64_t first, std::int64_t position) const {
  const std::int64_t turned_size = model_.rotary_size();
  const std::int64_t half = turned_size / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * angles.frequencies[static_cast<std::size_t>(i)];
    const double cosine = angles.magnitude * std::cos(angle);
    const double sine = angles.magnitude * std::sin(angle);
    double& low = row[static_cast<std::size_t>(first + i)];
    double& high = row[static_cast<std::size_t>(first + i + half)];
    const double turned = low * cosine - high * sine;
    high = high * cosine + low * sine;
    low = turned;
  }
}

ReferenceModel::Rows ReferenceModel::attention(int unit, Rows qkv) const {
  const std::int64_t heads = model_.num_heads;
  const std::int64_t kv_heads = model_.num_kv_heads;
  const std::int64_t size = model_.head_size;
  const auto layer = static_cast<std::int64_t>(unit) - 1;
  const double given = model_.architecture.attention_multiplier;
  const double scale = given > 0 ? given : 1 / std::sqrt(static_cast<double>(size));
  const bool is_full = std::count(model_.full_layers.begin(), model_.full_layers.end(), layer) > 0;
  const auto window = static_cast<std::size_t>(is_full ? 0 : model_.attention_window);
  const bool is_local = model_.rope_local_theta > 0 && window > 0;
  if (model_.architecture.positions == PositionKind::rotary &&
      std::count(model_.unrotated_layers.begin(), model_.unrotated_layers.end(), layer) == 0) {
    for (std::size_t t = 0; t < qkv.size(); ++t) {
      for (std::int64_t head = 0; head < heads + kv_heads; ++head)
        rotate(is_local ? local_angles_ : angles_, qkv[t], head * size,
               static_cast<std::int64_t>(t));
    }
  }
  const bool causal = model_.architecture.objective == Objective::next_token;
  Rows out(qkv.size(), std::vector<double>(static_cast<std::size_t>(heads * size)));
  for (std::size_t t = 0; t < qkv.size(); ++t) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t key = (heads + head * kv_heads / heads) * size;
      const std::int64_t value = key + kv_heads * size;
      std::vector<double> scores;
      const std::size_t seen = causal ? t + 1 : qkv.size();
      const std::size_t first = window > 0 && t >= window ? t + 1 - window : 0;
      for (std::size_t s = first; s < seen; ++s) {
        scores.push_back(capped(scale * dot(qkv[t].data() + head * size, qkv[s].data() + key, size),
                                model_.architecture.attention_softcap));
      }
      const double total = log_sum_exp(scores);
      for (std::size_t s = first; s < seen; ++s) {
        for (std::int64_t i = 0; i < size; ++i) {
          out[t][static_cast<std::size_t>(head * size + i)] +=
              std::exp(scores[s - first] - total) * qkv[s][static_cast<std::size_t>(value + i)];
        }
      }
    }
  }
  return out;
}

double ReferenceModel::activation(Activation activation, double z) {
  switch (activation) {
    case Activation::gelu_tanh:
      return 0.5 * z *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
    case Activation::gelu:
      return 0.5 * z * (1 + std::erf(z / std::numbers::sqrt2));
    case Activation::relu:
      return std::max(z, 0.0);
    case Activation::silu:
      return z / (1 + std::exp(-z));
    case Activation::tanh:
      return std::tanh(z);
  }
  return 0;
}

ReferenceModel::Rows ReferenceModel::activations(const Rows& x) const {
  Rows out = x;
  for (auto& row : out)
    for (double& z : row) z = activation(model_.architecture.activation, z);
  return out;
}

ReferenceModel::Rows ReferenceModel::gated(const Rows& x) const {
  Rows out;
  for (const auto& row : x) {
    auto& result = out.emplace_back();
    const std::size_t width = row.size() / 2;
    for (std::size_t i = 0; i < width; ++i)
      result.push_back(activation(model_.architecture.activation, row[i]) * row[width + i]);
  }
  return out;
}

}  // namespace dstune::test
