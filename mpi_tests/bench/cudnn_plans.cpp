// Asks cuDNN for the first plan of our attention on GPUs that are not there, for each head size and
// form, by the GPUs' properties as text. It needs cuDNN 9.11 or newer, and no GPU.
//   cudnn_plans [WORDS OF A FORM...]
// A cell is the plan's workspace in bytes a token, or cuDNN's status. Kernels are compiled, and
// none is run. The exit code is 1 where a form has no plan on some GPU, 77 without cuDNN.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "libraries/attention_graph.hpp"

namespace dstune::kernels::cuda {

namespace {

struct DescribedGpu {
  const char* name;
  int version;  ///< 900: compute capability 9.0
  int multiprocessors, threads, blocks;
  int shared_bytes;  ///< that a block may ask for
  int l2_mib, memory_gib;
};

/// Figures of the vendor's data sheets, and of CUDA's guide ("Technical Specifications per Compute
/// Capability").
constexpr DescribedGpu gpus[] = {{"A100", 800, 108, 2048, 32, 163 << 10, 40, 80},
                                 {"H100", 900, 132, 2048, 32, 227 << 10, 50, 80},
                                 {"B200", 1000, 148, 2048, 32, 227 << 10, 126, 180},
                                 {"RTX 5090", 1200, 170, 1536, 24, 99 << 10, 96, 32}};

std::string text_of(const DescribedGpu& gpu) {
  return fmt::format(
      R"({{"deviceVer":{},"driverVer":13000,"cudaDeviceId":0,"maxGridSize":[2147483647,65535,65535],)"
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":{},"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":{},)"
      R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":{},"pciDeviceId":0,"isTccDriver":0,)"
      R"("supportCoopLaunch":1,"smClockRateKHz":1800000,"memClockRateKHz":2600000,)"
      R"("l2CacheSize":{},"deviceName":"{}","totalGlobalMem":{}}})",
      gpu.version, gpu.multiprocessors, gpu.shared_bytes, gpu.blocks, gpu.threads,
      std::int64_t{gpu.l2_mib} << 20, gpu.name, std::int64_t{gpu.memory_gib} << 30);
}

Descriptor properties_of(const DnnLibrary& library, const DescribedGpu& gpu) {
  const std::string text = text_of(gpu);
  Descriptor properties(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 static_cast<std::int64_t>(text.size() + 1), text.c_str());
  properties.finalize();
  return properties;
}

struct Form {
  const char* name;
  AttentionShape shape;  ///< but the heads' size
};

AttentionShape shape_of(DType type, std::int64_t sequence, bool causal) {
  return {
      .batch = 4, .sequence = sequence, .heads = 8, .kv_heads = 8, .causal = causal, .type = type};
}

std::vector<Form> forms() {
  std::vector<Form> all{{"causal", shape_of(DType::bf16, 1024, true)},
                        {"causal, fp16", shape_of(DType::f16, 1024, true)},
                        {"bidirectional", shape_of(DType::bf16, 512, false)},
                        {"shared key heads", shape_of(DType::bf16, 1024, true)},
                        {"window of 256", shape_of(DType::bf16, 1024, true)},
                        {"1000 tokens", shape_of(DType::bf16, 1000, true)}};
  all[3].shape.kv_heads = 2;
  all[4].shape.window = 256;
  return all;
}

/// Forward without a form of backward.
std::string judgement(const DnnLibrary& library, const AttentionShape& shape,
                      std::optional<BackwardForm> backward, const Descriptor& properties,
                      bool& is_refused) {
  const AttentionPiece piece{shape, shape.batch, shape.kv_heads};
  try {
    const OperationGraph graph = backward ? attention_backward_graph(library, piece, *backward)
                                          : attention_forward_graph(library, piece);
    const std::vector<Descriptor> plans =
        graph.plans({.properties = &properties}, std::numeric_limits<std::int64_t>::max(), 1);
    const std::int64_t bytes = plans.front().number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    return fmt::format("{}", bytes / (shape.batch * shape.sequence));
  } catch (const DnnRefusal& refusal) {
    is_refused = true;
    return fmt::format("status {}", static_cast<int>(refusal.status));
  }
}

int run(const std::vector<std::string>& wanted) {
  std::string why_not;
  const DnnLibrary* const library = dnn_library(why_not);
  if (library == nullptr) {
    fmt::print(stderr, "no cuDNN: {}\n", why_not);
    return 77;
  }
  fmt::print("cuDNN {}\n{:18} {:>4}  {:16}", library->get_version(), "form", "head", "direction");
  std::vector<Descriptor> properties;
  for (const DescribedGpu& gpu : gpus) {
    properties.push_back(properties_of(*library, gpu));
    fmt::print("{:>14}", gpu.name);
  }
  fmt::print("\n");
  bool is_refused = false;
  for (const Form& form : forms()) {
    const auto is_meant = [&](const std::string& word) {
      return std::string(form.name).find(word) != std::string::npos;
    };
    if (!wanted.empty() && std::ranges::none_of(wanted, is_meant)) continue;
    for (const int head_size : {8, 16, 32, 40, 64, 72, 80, 96, 104, 128, 160, 192, 224, 256}) {
      AttentionShape shape = form.shape;
      shape.head_size = head_size;
      const std::pair<const char*, std::optional<BackwardForm>> directions[] = {
          {"forward", {}},
          {"backward, stored", BackwardForm::stored_scores},
          {"backward, added", BackwardForm::added_up}};
      for (const auto& [direction, backward] : directions) {
        fmt::print("{:18} {:>4}  {:16}", form.name, head_size, direction);
        for (const Descriptor& gpu : properties)
          fmt::print("{:>14}", judgement(*library, shape, backward, gpu, is_refused));
        fmt::print("\n");
        std::fflush(stdout);
      }
    }
  }
  return is_refused ? 1 : 0;
}

}  // namespace
}  // namespace dstune::kernels::cuda

int main(int argc, char** argv) {
  return dstune::kernels::cuda::run({argv + 1, argv + argc});
}
