#include "gpu_step_arguments.hpp"

#include <array>
#include <cstddef>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"

namespace dstune {
namespace {

const Arguments defaults{{"backend", "cuda"},   {"model", "gpt2"},       {"precision", "bf16"},
                         {"micro-batch", "1"},  {"tokens", "1024"},      {"accumulation", "1"},
                         {"recompute", "none"}, {"stage", "0"},          {"offload", "none"},
                         {"steps", "20"},       {"trace-seconds", "10"}, {"threads", "1"},
                         {"peak-tflops", "0"},  {"peak-tbs", "0"},       {"launch-us", "0"}};

template <class Value, std::size_t count>
Value chosen(const Arguments& arguments, const std::string& name,
             const std::array<Value, count>& values) {
  for (const Value value : values)
    if (arguments.at(name) == to_text(value)) return value;
  throw UsageError("--" + name + " " + arguments.at(name) + " is none of those there are");
}

}  // namespace

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments = defaults;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(0, 2) == "--" ? argv[i] + 2 : argv[i];
    if (i + 1 == argc || !arguments.contains(name)) {
      std::string known;
      for (const auto& [key, value] : defaults) known += " [--" + key + " " + value + "]";
      throw UsageError("usage: gpu_step_bench" + known);
    }
    arguments[name] = argv[i + 1];
  }
  return arguments;
}

ModelSpec model_of(const Arguments& arguments) {
  // A preset's name, or a Hugging Face config.json.
  const std::string& name = arguments.at("model");
  return name.ends_with(".json") ? import_huggingface(json::Document::read(name)) : preset(name);
}

TrainingConfig config_of(const Arguments& arguments) {
  TrainingConfig config;
  config.zero_stage = std::stoi(arguments.at("stage"));
  config.micro_batch = std::stoll(arguments.at("micro-batch"));
  config.accumulation_steps = std::stoll(arguments.at("accumulation"));
  config.sequence_length = std::stoll(arguments.at("tokens"));
  config.precision =
      chosen(arguments, "precision", std::array{Precision::bf16, Precision::fp16, Precision::fp32});
  config.recompute = chosen(arguments, "recompute",
                            std::array{Recompute::none, Recompute::selective, Recompute::block});
  config.offload_optimizer =
      chosen(arguments, "offload", std::array{OffloadDevice::none, OffloadDevice::cpu});
  return config;
}

}  // namespace dstune
