#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/instrument/workloads.hpp"
#include "plugin/plugin_group.hpp"
#include "plugin/plugin_thread.hpp"

namespace dstune {
namespace {

constexpr double longest_timeout_s = 1e9;

template <class Function>
void find(void* library, const char* name, const std::string& path, Function& function) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) throw Error(path + " does not export " + name);
  function = reinterpret_cast<Function>(symbol);
}

PluginFunctions open(const std::string& path) {
  // Everything it needs is looked up now: a missing function is found here and not in a step.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(path + " can not be loaded: " + dlerror() +
                "; link what it needs, and name the folders of its libraries in its RPATH or in "
                "LD_LIBRARY_PATH on every rank");
  }
  PluginFunctions functions;
  find(library, "dstune_workload_build", path, functions.build);
  find(library, "dstune_workload_step", path, functions.step);
  find(library, "dstune_workload_report", path, functions.report);
  find(library, "dstune_workload_destroy", path, functions.destroy);
  return functions;
}

}  // namespace

const PluginFunctions& load_plugin(const std::string& path, const PluginLoading& loading) {
  static std::mutex mutex;
  static std::map<std::string, PluginFunctions> loaded;
  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(path); found != loaded.end()) return found->second;
  if (!loading.on_own_thread) return loaded.emplace(path, open(path)).first->second;
  const auto thread = train::PluginThread::current();
  // A constructor that never returns outlives this call.
  struct Loaded {
    PluginFunctions functions;
    bool has_closed = false;
  };
  const auto loading_now = std::make_shared<Loaded>();
  const std::chrono::duration<double> timeout(std::min(loading.timeout_s, longest_timeout_s));
  const bool has_returned = thread->run(
      [thread = thread.get(), path, loading_now] {
        loading_now->functions = open(path);
        loading_now->has_closed = thread->has_closed_descriptors();
      },
      Waiter::Clock::now() + std::chrono::duration_cast<Waiter::Clock::duration>(timeout));
  if (!has_returned)
    throw ConstructorHangs(fmt::format("{}: its constructor has not returned after {}", path,
                                       format_duration(loading.timeout_s)));
  if (loading_now->has_closed)
    throw Error(path + ": its constructor closed descriptors that it had not opened");
  return loaded.emplace(path, loading_now->functions).first->second;
}

}  // namespace dstune

namespace dstune::train {
namespace {

using Clock = std::chrono::steady_clock;

// Beyond them sums and products of what a plug-in says would overflow.
constexpr std::int64_t max_usage = std::int64_t{1}
                                   << 52;  ///< exact as a double; of parameters, too
constexpr double max_flops = 1e30;
constexpr double max_told_step_s = 1e9;

/// The configuration of the experiment for the library; the texts live as long as this.
struct Configuration {
  std::string options;
  std::string precision;
  std::string recompute;
  dstune_configuration fields{};

  Configuration(const WorkloadSpec& spec, const WorkloadContext& context)
      : precision(to_text(context.config->precision)),
        recompute(to_text(context.config->recompute)) {
    json::Value own = spec.options;
    own.erase("type");
    own.erase("library");
    options = own.dump();
    const TrainingConfig& config = *context.config;
    fields.struct_bytes = sizeof fields;
    fields.experiment = context.experiment_name->c_str();
    fields.ds_config = context.ds_config->c_str();
    fields.options = options.c_str();
    fields.precision = precision.c_str();
    fields.recompute = recompute.c_str();
    fields.zero_stage = config.zero_stage;
    fields.threads = context.device->threads();
    fields.micro_batch = config.micro_batch;
    fields.accumulation_steps = config.accumulation_steps;
    fields.global_batch = global_batch(config, context.group->size());
    fields.sequence_length = config.sequence_length;
    fields.device_memory_bytes = context.device->budget().limit_bytes();
  }
};

void check_times(const dstune_step& step) {
  using Time = std::pair<const char*, double>;
  for (const auto& [name, time_s] :
       std::array{Time{"step_s", step.step_s}, Time{"forward_s", step.forward_s},
                  Time{"backward_s", step.backward_s}, Time{"update_s", step.update_s}}) {
    if (!(time_s >= 0 && time_s <= max_told_step_s)) {
      throw RecordedStatus(Status::failed, fmt::format("the plug-in says {} {}", name, time_s));
    }
  }
}

/// A workload of the user's own, from a shared library.
class PluginWorkload : public Workload {
 public:
  PluginWorkload(const WorkloadSpec& spec, const WorkloadContext& context)
      : spec_(spec),
        context_(context),
        functions_(&load_plugin(spec.library_path, {.on_own_thread = context.may_use_threads})),
        group_(context.group->host(), *context.waiter, thread_for(context)) {}
  ~PluginWorkload() override {
    if (!is_built_) return;
    group_.call_alone([this] {
      try {
        functions_->destroy(workload_);
      } catch (...) {
        // It must not throw; whatever it left behind is its own.
      }
    });
  }
  PluginWorkload(const PluginWorkload&) = delete;
  PluginWorkload& operator=(const PluginWorkload&) = delete;

  /// It meets its peers before it talks to them.
  [[nodiscard]] WorkloadTraits traits() const override {
    return {.micro_steps = context_.config->accumulation_steps};
  }

  /// Collective over the group. Throws RecordedStatus.
  void build() override {
    const Configuration configuration(spec_, context_);
    const bool all_well = group_.call("build", [&] {
      const dstune_status status =
          functions_->build(&configuration.fields, group_.functions(), &workload_);
      is_built_ = status == DSTUNE_OK;
      return is_built_ ? report() : status;
    });
    if (all_well) check_usage();
  }

  void initialize() override {}

  StepSample step(std::int64_t step) override {
    dstune_step result{};
    result.struct_bytes = sizeof result;
    result.loss = std::numeric_limits<double>::quiet_NaN();
    double measured_s = 0;
    const bool all_well = group_.call("step " + std::to_string(step), [&] {
      const Clock::time_point began = Clock::now();
      const dstune_status status = functions_->step(workload_, step, &result);
      measured_s = std::chrono::duration<double>(Clock::now() - began).count();
      return status == DSTUNE_OK ? report() : status;
    });
    if (!all_well) return {};  // the peer that failed throws, and the group agrees on it
    check_times(result);
    check_usage();
    return {.loss = result.loss,
            .step_s = std::max(result.step_s > 0 ? result.step_s : measured_s, min_step_s),
            .forward_s = result.forward_s,
            .backward_s = result.backward_s,
            .update_s = result.update_s};
  }

  [[nodiscard]] WarmupNeed warmup_need() const override {
    return context_.settled == nullptr ? WarmupNeed{}
                                       : context_.settled->need_of(settled_key(context_));
  }
  void note_warm_after(int steps) override {
    if (context_.settled != nullptr) context_.settled->note(settled_key(context_), steps);
  }

  [[nodiscard]] PeakMemory peak_memory() const override {
    return {.total_bytes = usage_.device_bytes + usage_.host_bytes,
            .category_bytes = {{"device", usage_.device_bytes}, {"host", usage_.host_bytes}},
            .process_bytes = process_resident_bytes(),
            .host_bytes = usage_.host_bytes};
  }

  [[nodiscard]] double flops_per_step() const override {
    if (usage_.flops_per_step > 0) return usage_.flops_per_step;
    // Forward and backward of a parameter and token: Kaplan et al., 2020, section 2.1.
    if (usage_.parameters > 0)
      return 6.0 * static_cast<double>(usage_.parameters) * tokens_per_step(context_);
    return model_flops_per_step(context_);
  }

 private:
  static std::shared_ptr<PluginThread> thread_for(const WorkloadContext& context) {
    if (!context.may_use_threads) return nullptr;
    auto thread = PluginThread::current();
    thread->use(*context.device);
    return thread;
  }

  dstune_status report() {
    dstune_usage usage{};
    usage.struct_bytes = sizeof usage;
    const dstune_status status = functions_->report(workload_, &usage);
    if (status != DSTUNE_OK) return status;
    const bool is_sound = usage.device_bytes >= 0 && usage.host_bytes >= 0 &&
                          usage.host_bytes <= max_usage && usage.parameters >= 0 &&
                          usage.parameters <= max_usage && usage.flops_per_step >= 0 &&
                          usage.flops_per_step <= max_flops;
    if (!is_sound) {
      return group_.functions()->fail(
          group_.functions(), DSTUNE_FAILED,
          "the plug-in reports a number below 0, or beyond what any machine has");
    }
    usage_ = usage;
    return DSTUNE_OK;
  }

  void check_usage() const {
    const std::int64_t limit_bytes = context_.device->budget().limit_bytes();
    if (usage_.device_bytes <= limit_bytes) return;
    throw RecordedStatus(Status::out_of_memory,
                         fmt::format("the plug-in holds {} of {} on the device",
                                     format_bytes(usage_.device_bytes), format_bytes(limit_bytes)));
  }

  const WorkloadSpec& spec_;
  WorkloadContext context_;
  const PluginFunctions* functions_;
  PluginGroup group_;
  void* workload_ = nullptr;
  bool is_built_ = false;
  dstune_usage usage_{};
};

}  // namespace

}  // namespace dstune::train

namespace dstune {

std::unique_ptr<Workload> make_plugin_workload(const WorkloadSpec& spec,
                                               const WorkloadContext& context) {
  return std::make_unique<train::PluginWorkload>(spec, context);
}

}  // namespace dstune
