#include "reference_model.hpp"

#include <cmath>
#include <numbers>

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
void add_to(Rows& x, const Rows& y) {
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
  }
}

double log_sum_exp(const std::vector<double>& values) {
  double largest = values.front();
  for (double value : values) largest = std::max(largest, value);
  double sum = 0;
  for (double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

}  // namespace

double ReferenceModel::loss(const std::vector<double>& parameters,
                            const std::vector<std::int32_t>& tokens) const {
  const Weights weights{table_, parameters};
  const std::size_t positions = tokens.size() - 1;
  const auto width = static_cast<std::size_t>(model_.hidden_size);
  Rows x(positions, std::vector<double>(width));
  for (std::size_t t = 0; t < positions; ++t) {
    for (std::size_t i = 0; i < width; ++i) {
      x[t][i] = weights.row(0, token_embedding, tokens[t])[i];
      if (weights.has(0, position_embedding))
        x[t][i] += weights.row(0, position_embedding, static_cast<std::int64_t>(t))[i];
    }
  }
  const auto layers = static_cast<int>(model_.num_layers);
  for (int unit = 1; unit <= layers; ++unit) {
    const Rows normed1 = norm(weights, unit, norm1_weight, norm1_bias, x);
    const Rows attended = attention(linear(weights, unit, qkv_weight, qkv_bias, normed1));
    add_to(x, linear(weights, unit, projection_weight, projection_bias, attended));
    const Rows normed2 = norm(weights, unit, norm2_weight, norm2_bias, x);
    const Rows activated = activation(linear(weights, unit, fc_weight, fc_bias, normed2));
    add_to(x, linear(weights, unit, fc_projection_weight, fc_projection_bias, activated));
  }
  const Rows last = norm(weights, layers + 1, final_norm_weight, final_norm_bias, x);
  const bool tied = model_.tie_embeddings;
  double sum = 0;
  for (std::size_t t = 0; t < positions; ++t) {
    std::vector<double> logits;
    for (std::int64_t token = 0; token < model_.vocab_size; ++token) {
      const double* row = tied ? weights.row(0, token_embedding, token)
                               : weights.row(layers + 1, head_weight, token);
      logits.push_back(dot(row, last[t].data(), model_.hidden_size));
    }
    sum += log_sum_exp(logits) - logits[static_cast<std::size_t>(tokens[t + 1])];
  }
  return sum / static_cast<double>(positions);
}

ReferenceModel::Rows ReferenceModel::norm(const Weights& weights, int unit, ParameterRole weight,
                                          ParameterRole bias, const Rows& x) const {
  const bool centred = model_.family == ModelFamily::gpt2;
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
      row[i] = (row[i] - mean) * rstd * weights.row(unit, weight)[i];
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

void ReferenceModel::rotate(std::vector<double>& row, std::int64_t first,
                            std::int64_t position) const {
  const std::int64_t half = model_.head_size / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) *
                         std::pow(model_.rope_theta, -2.0 * static_cast<double>(i) /
                                                         static_cast<double>(model_.head_size));
    double& low = row[static_cast<std::size_t>(first + i)];
    double& high = row[static_cast<std::size_t>(first + i + half)];
    const double turned = low * std::cos(angle) - high * std::sin(angle);
    high = high * std::cos(angle) + low * std::sin(angle);
    low = turned;
  }
}

ReferenceModel::Rows ReferenceModel::attention(Rows qkv) const {
  const std::int64_t heads = model_.num_heads;
  const std::int64_t kv_heads = model_.num_kv_heads;
  const std::int64_t size = model_.head_size;
  if (model_.family == ModelFamily::llama) {
    for (std::size_t t = 0; t < qkv.size(); ++t) {
      for (std::int64_t head = 0; head < heads + kv_heads; ++head)
        rotate(qkv[t], head * size, static_cast<std::int64_t>(t));
    }
  }
  Rows out(qkv.size(), std::vector<double>(static_cast<std::size_t>(heads * size)));
  for (std::size_t t = 0; t < qkv.size(); ++t) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t key = (heads + head * kv_heads / heads) * size;
      const std::int64_t value = key + kv_heads * size;
      std::vector<double> scores;
      for (std::size_t s = 0; s <= t; ++s) {
        scores.push_back(dot(qkv[t].data() + head * size, qkv[s].data() + key, size) /
                         std::sqrt(static_cast<double>(size)));
      }
      const double total = log_sum_exp(scores);
      for (std::size_t s = 0; s <= t; ++s) {
        for (std::int64_t i = 0; i < size; ++i) {
          out[t][static_cast<std::size_t>(head * size + i)] +=
              std::exp(scores[s] - total) * qkv[s][static_cast<std::size_t>(value + i)];
        }
      }
    }
  }
  return out;
}

ReferenceModel::Rows ReferenceModel::activation(const Rows& x) const {
  Rows out;
  for (const auto& row : x) {
    auto& result = out.emplace_back();
    if (model_.family == ModelFamily::gpt2) {
      for (double z : row) {
        const double inner = std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z);
        result.push_back(0.5 * z * (1 + std::tanh(inner)));
      }
    } else {
      const std::size_t width = row.size() / 2;
      for (std::size_t i = 0; i < width; ++i)
        result.push_back(row[i] / (1 + std::exp(-row[i])) * row[width + i]);
    }
  }
  return out;
}

}  // namespace dstune::test
