#pragma once
/// The cases of scripts/tools/reference_step.py and their losses: in double precision, but in fp16
/// for what only happens there.

#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune::test {

struct Golden {
  ModelSpec model;
  TrainingConfig config;  ///< micro-batch and accumulation are to be chosen
  std::int64_t seed = 0;
  std::int64_t global_batch = 0;
  std::vector<double> losses;
  std::vector<std::int64_t> skipped_steps;  ///< of a case in fp16

  explicit Golden(const std::string& name) {
    const json::Document document =
        json::Document::read(std::string(DSTUNE_GOLDEN_FOLDER) + "/" + name + ".json");
    json::Value spec = document.root().at("model");
    spec["name"] = name;
    spec["dropout"] = 0.0;
    model = model_from_json(spec);
    const json::Value& training = document.root().at("training");
    training.at("seed").get_to(seed);
    training.at("global_batch").get_to(global_batch);
    training.at("sequence_length").get_to(config.sequence_length);
    training.at("gradient_clipping").get_to(config.gradient_clipping);
    const json::Value& optimizer = training.at("optimizer");
    using enum OptimizerKind;
    for (const OptimizerKind kind : {adam, adamw, lion, sgd, adagrad})
      if (optimizer.at("kind") == to_text(kind)) config.optimizer.kind = kind;
    const auto read = [&](const char* key, auto& member) {
      if (const auto found = optimizer.find(key); found != optimizer.end()) found->get_to(member);
    };
    read("learning_rate", config.optimizer.learning_rate);
    read("beta1", config.optimizer.beta1);
    read("beta2", config.optimizer.beta2);
    read("epsilon", config.optimizer.epsilon);
    read("weight_decay", config.optimizer.weight_decay);
    read("momentum", config.optimizer.momentum);
    read("dampening", config.optimizer.dampening);
    read("nesterov", config.optimizer.nesterov);
    read("learning_rate_decay", config.optimizer.learning_rate_decay);
    read("initial_accumulator", config.optimizer.initial_accumulator);
    if (training.value("offload_optimizer", false)) config.offload_optimizer = OffloadDevice::cpu;
    config.low_precision_master = training.value("low_precision_master", false);
    config.low_precision_moments = training.value("low_precision_moments", false);
    if (const auto fp16 = training.find("fp16"); fp16 != training.end()) {
      config.precision = Precision::fp16;
      fp16->at("initial_scale_power").get_to(config.loss_scale.initial_power);
      fp16->at("loss_scale_window").get_to(config.loss_scale.window);
      fp16->at("hysteresis").get_to(config.loss_scale.hysteresis);
      document.root().at("skipped_steps").get_to(skipped_steps);
    }
    document.root().at("losses").get_to(losses);
  }

  /// The case's global batch on so many ranks, in the least number of micro-steps from
  /// `accumulation_steps` on that divides it.
  [[nodiscard]] TrainingConfig on(int ranks, int stage, std::int64_t accumulation_steps) const {
    const std::int64_t samples_of_rank = global_batch / ranks;
    TrainingConfig result = config;
    result.zero_stage = stage;
    result.accumulation_steps = accumulation_steps;
    while (samples_of_rank % result.accumulation_steps != 0) ++result.accumulation_steps;
    result.micro_batch = samples_of_rank / result.accumulation_steps;
    return result;
  }
};

}  // namespace dstune::test
