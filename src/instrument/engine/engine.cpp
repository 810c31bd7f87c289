#include "dstune/instrument/engine/engine.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"

namespace dstune::engine {
namespace {

/// That imports may take to end once they are to.
constexpr std::chrono::seconds prepare_drain{5};
/// The least time that Python has to drain, as at the end of an experiment.
constexpr double min_drain_s = 5;
/// Beyond them sums and products would overflow.
constexpr double max_step_s = 1e9;
constexpr double max_count = 1e18;

double number_in(const json::Value& reply, const char* key, double fallback) {
  const auto found = reply.find(key);
  return found != reply.end() && found->is_number() ? found->get<double>() : fallback;
}

std::int64_t count_in(const json::Value& reply, const char* key) {
  return static_cast<std::int64_t>(std::clamp(number_in(reply, key, 0), 0.0, max_count));
}

std::map<std::string, std::string> texts_in(const json::Value& object, const char* key) {
  std::map<std::string, std::string> texts;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_object()) return texts;
  for (const auto& [name, value] : found->items())
    if (value.is_string()) texts[name] = value.get<std::string>();
  return texts;
}

void add_texts(const json::Value& reply, const char* key, const char* prefix,
               std::vector<std::string>& texts) {
  const auto found = reply.find(key);
  if (found == reply.end() || !found->is_array()) return;
  for (const json::Value& text : *found)
    if (text.is_string()) texts.push_back(prefix + text.get<std::string>());
}

/// All that the user is to be told of it.
void add_notes(const json::Value& reply, std::vector<std::string>& notes) {
  add_texts(reply, "notes", "", notes);
  add_texts(reply, "leaked", "still held after the experiment: ", notes);
  add_texts(reply, "wrote", "the script wrote ", notes);
}

Status status_of(ErrorKind kind) {
  return kind == ErrorKind::out_of_memory ? Status::out_of_memory : Status::failed;
}

/// Python's words for people: what it printed is above the traceback.
std::string details_of(const PythonError& error) {
  std::string text;
  if (!error.output.empty())
    text += error.output + (error.output.ends_with('\n') ? "" : "\n") + "\n";
  text += trimmed(error.traceback);
  if (!text.ends_with(error.what())) text += (text.empty() ? "" : "\n") + std::string(error.what());
  return text + '\n';
}

}  // namespace

std::vector<int> Engine::listening_ports(const Waiter& waiter) {
  const json::Value reply = channel_.call({{"command", "look"}}, waiter, prepare_drain);
  std::vector<int> ports;
  const auto found = reply.find("listening_ports");
  if (found == reply.end() || !found->is_array()) return ports;
  for (const json::Value& port : *found)
    if (port.is_number_integer()) ports.push_back(port.get<int>());
  return ports;
}

const Loaded& Engine::prepare(const WorkloadSpec& workload, const std::vector<int>& foreign_ports,
                              const Waiter& waiter) {
  json::Value command = {{"command", "prepare"},
                         {"workload", workload.options},
                         {"model", nullptr},
                         {"world_rank", place_.world_rank},
                         {"local_rank", place_.local_rank},
                         {"device", place_.on_gpu ? "cuda" : "cpu"},
                         {"device_index", place_.device_index},
                         {"threads", place_.threads},
                         {"foreign_ports", foreign_ports},
                         {"imports_only", workload.options.value("imports_only", false)}};
  if (!workload.model_config.empty()) command["model"] = workload.model_config;
  const json::Value reply = channel_.call(command, waiter, prepare_drain);
  loaded_.versions = texts_in(reply, "versions");
  loaded_.paths = texts_in(reply, "paths");
  const auto hash = reply.find("script_hash");
  if (hash != reply.end() && hash->is_string()) loaded_.script_hash = hash->get<std::string>();
  const auto operators = reply.find("operators");
  if (operators != reply.end() && operators->is_object())
    loaded_.missing_operators = texts_in(*operators, "missing");
  loaded_.resident_bytes = count_in(reply, "resident_bytes");
  return loaded_;
}

std::vector<std::vector<std::string>> Engine::lacking_operators(
    const std::vector<json::Value>& configs, const Waiter& waiter) {
  json::Value command = {{"command", "operators"}, {"configs", configs}};
  const json::Value reply = channel_.call(command, waiter, prepare_drain);
  for (const auto& [name, reason] : texts_in(reply, "broken"))
    log::warning(fmt::format(log_text::operator_does_not_load, name, reason));
  loaded_.missing_operators.merge(texts_in(reply, "mends"));
  std::vector<std::vector<std::string>> lacking(configs.size());
  const auto found = reply.find("lacking");
  if (found == reply.end() || !found->is_array()) return lacking;
  std::size_t place = 0;
  for (const json::Value& names : *found) {
    if (place == lacking.size()) break;
    for (const json::Value& name : names) lacking[place].push_back(name.get<std::string>());
    ++place;
  }
  return lacking;
}

std::vector<std::string> Engine::take_notes() {
  std::vector<std::string> notes = std::exchange(notes_, {});
  add_notes(channel_.take_error(), notes);
  return notes;
}

std::vector<std::string> Engine::end(bool failed, const Waiter& waiter) {
  std::vector<std::string> notes = take_notes();
  if (!has_begun_) return notes;
  has_begun_ = false;
  const json::Value reply =
      channel_.call({{"command", "end"}, {"failed", failed}}, waiter,
                    std::chrono::duration<double>(std::max(min_drain_s, drain_timeout_s_)));
  add_notes(reply, notes);
  return notes;
}

/// One experiment of a rank.
class EngineWorkload : public Workload {
 public:
  EngineWorkload(Engine& engine, const WorkloadContext& context, Assignment assignment)
      : engine_(engine), context_(context), assignment_(std::move(assignment)) {}

  [[nodiscard]] WorkloadTraits traits() const override {
    return {.micro_steps = context_.config->accumulation_steps,
            .is_raced_early = true,
            .talks_to_peers = true};
  }

  /// The store by which the members find each other. Collective over the group.
  void build() override {
    engine_.drain_timeout_s_ = assignment_.drain_timeout_s;
    ProcessGroup& group = context_.group->host();
    std::exception_ptr failure;
    if (group.group_rank() == 0) {
      try {
        port_ = count_in(ask({{"command", "open_store"}}), "port");
      } catch (const StepFailure& error) {
        // Peers are told by the agreement that follows.
        failure = std::make_exception_ptr(Error(error.what()));
      }
    }
    port_ = static_cast<std::int64_t>(group.exchange(std::array{static_cast<double>(port_)})[0]);
    if (failure) std::rethrow_exception(failure);
  }

  /// Collective over the group.
  void initialize() override {
    const json::Value reply = ask(build_command());
    parameters_ = count_in(reply, "parameters");
    add_texts(reply, "notes", "", engine_.notes_);
    // DeepSpeed's own figure does not count tensor parallelism.
    const std::int64_t asked = count_in(ds_config(), "train_batch_size");
    const std::int64_t got = count_in(reply, "global_batch");
    if (got > 0 && got != asked) {
      throw StepFailure(Status::failed,
                        fmt::format("the engine has a global batch of {} where the configuration "
                                    "has {}: the script does not take this configuration",
                                    got, asked));
    }
  }

  /// Collective over the group.
  StepSample step(std::int64_t step) override {
    if (taken_.empty()) take_steps(step);
    const Taken mine = taken_.front();
    taken_.pop_front();
    StepSample sample = mine.sample;
    device_peak_bytes_ = std::max(device_peak_bytes_, mine.device_peak_bytes);
    resident_peak_bytes_ = std::max(resident_peak_bytes_, mine.resident_peak_bytes);
    // The group's sample: every rank has as many samples.
    ProcessGroup& group = context_.group->host();
    const std::vector<double> all =
        group.exchange(std::array{sample.loss, sample.skipped ? 1.0 : 0.0, sample.step_s});
    double sum = 0;
    last_step_s_ = 0;
    for (std::size_t rank = 0; rank < all.size(); rank += 3) {
      sum += all[rank];
      sample.skipped = sample.skipped || all[rank + 1] != 0;
      last_step_s_ = std::max(last_step_s_, all[rank + 2]);
    }
    sample.loss = sum / group.size();
    spent_s_ += last_step_s_;
    return sample;
  }

  [[nodiscard]] WarmupNeed warmup_need() const override {
    return context_.settled == nullptr ? WarmupNeed{}
                                       : context_.settled->need_of(settled_key(context_));
  }
  void note_warm_after(int steps) override {
    if (context_.settled != nullptr) context_.settled->note(settled_key(context_), steps);
  }

  [[nodiscard]] std::int64_t steps_at_hand() const override {
    return static_cast<std::int64_t>(taken_.size());
  }

  [[nodiscard]] PeakMemory peak_memory() const override {
    const std::int64_t resident_bytes = std::max(resident_peak_bytes_, process_resident_bytes());
    PeakMemory peak;
    peak.process_bytes = resident_bytes;
    // The imports take a part of a processor's memory that is no experiment's.
    const std::int64_t own_bytes =
        std::max<std::int64_t>(0, resident_bytes - engine_.loaded_.resident_bytes);
    peak.total_bytes = engine_.place_.on_gpu ? device_peak_bytes_ : own_bytes;
    if (engine_.place_.on_gpu) {
      peak.gpu_bytes = device_peak_bytes_;
      peak.category_bytes = {{"device", device_peak_bytes_}, {"host", 0}};
    } else {
      peak.category_bytes = {{"device", own_bytes}, {"host", 0}};
    }
    return peak;
  }

  [[nodiscard]] double flops_per_step() const override {
    if (assignment_.trains_model) return model_flops_per_step(context_);
    // Forward and backward of a parameter and token: Kaplan et al., 2020, section 2.1.
    return 6.0 * static_cast<double>(parameters_) * tokens_per_step(context_);
  }

 private:
  static double time_in(const json::Value& reply, const char* key) {
    const double time_s = number_in(reply, key, 0);
    if (!(time_s >= 0 && time_s <= max_step_s))
      throw StepFailure(Status::failed, fmt::format("Python says {} {}", key, time_s));
    return time_s;
  }

  json::Value ds_config() const {
    return json::Document::parse(*context_.ds_config, "ds_config").root();
  }

  json::Value build_command() const {
    const TrainingConfig& config = *context_.config;
    json::Value command = {{"command", "build"},
                           {"experiment", *context_.experiment_name},
                           {"attempt", assignment_.attempt},
                           {"ds_config", ds_config()},
                           {"micro_batch", config.micro_batch},
                           {"accumulation_steps", config.accumulation_steps},
                           {"global_batch", global_batch(config, context_.group->size())},
                           {"group_rank", context_.group->group_rank()},
                           {"group_size", context_.group->size()},
                           {"group_local_rank", assignment_.group_local_rank},
                           {"group_local_size", assignment_.group_local_size},
                           {"group_node", assignment_.group_node},
                           {"group_nodes", assignment_.group_nodes},
                           {"store", {{"host", assignment_.leader_host}, {"port", port_}}},
                           {"timeout_s", assignment_.timeout_s},
                           {"backend", engine_.place_.on_gpu ? "nccl" : "gloo"},
                           {"seed", context_.seed},
                           {"sequence_length", config.sequence_length},
                           {"recompute", to_text(config.recompute)},
                           {"steps_hint", 0},
                           {"memory_limit_bytes", context_.device->budget().limit_bytes()},
                           {"arguments", assignment_.arguments}};
    if (!assignment_.own_model.is_null()) command["own_model"] = assignment_.own_model;
    return command;
  }

  /// The results of one optimizer step on this rank.
  struct Taken {
    StepSample sample;
    std::int64_t device_peak_bytes = 0;
    std::int64_t resident_peak_bytes = 0;
  };

  static Taken taken_in(const json::Value& reply) {
    Taken taken;
    taken.sample = {.loss = number_in(reply, "loss", std::numeric_limits<double>::quiet_NaN()),
                    .step_s = std::max(time_in(reply, "step_s"), min_step_s),
                    .forward_s = time_in(reply, "forward_s"),
                    .backward_s = time_in(reply, "backward_s"),
                    .update_s = time_in(reply, "update_s")};
    const auto skipped = reply.find("skipped");
    taken.sample.skipped = skipped != reply.end() && *skipped == true;
    taken.device_peak_bytes = count_in(reply, "device_peak_bytes");
    taken.resident_peak_bytes = count_in(reply, "peak_resident_bytes");
    return taken;
  }

  /// Between commands a script stands still, and its ranks begin the next step a little apart,
  /// which counts where steps are short. So a command is for more steps the longer the experiment
  /// has run; what the program did not need of them costs a share of its time at most. The same
  /// number on every rank.
  [[nodiscard]] std::int64_t steps_at_once() const {
    if (last_step_s_ <= 0) return 1;
    const double wanted_s = std::min(default_policy().measuring.max_at_once_s,
                                     default_policy().measuring.share_at_once * spent_s_);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted_s / last_step_s_));
  }

  void take_steps(std::int64_t number) {
    const json::Value reply =
        ask({{"command", "step"}, {"number", number}, {"count", steps_at_once()}});
    const auto steps = reply.find("steps");
    if (steps != reply.end() && steps->is_array())
      for (const json::Value& step : *steps) taken_.push_back(taken_in(step));
    if (taken_.empty()) throw StepFailure(Status::failed, "Python tells of no step");
  }

  /// Peers may be inside a collective with this rank: a failure is not agreed on, they are told.
  json::Value ask(const json::Value& command) {
    engine_.has_begun_ = true;
    try {
      return engine_.channel_.call(
          command, *context_.waiter,
          std::chrono::duration<double>(std::max(min_drain_s, assignment_.drain_timeout_s)));
    } catch (const PythonError& error) {
      throw StepFailure(status_of(error.kind), error.what(), details_of(error));
    }
  }

  Engine& engine_;
  WorkloadContext context_;
  Assignment assignment_;
  std::int64_t port_ = 0;
  std::int64_t parameters_ = 0;
  std::deque<Taken> taken_;  ///< and not yet asked for
  double last_step_s_ = 0;   ///< of the group's slowest rank
  double spent_s_ = 0;       ///< all of these
  std::int64_t device_peak_bytes_ = 0;
  std::int64_t resident_peak_bytes_ = 0;
};

std::unique_ptr<Workload> Engine::make_workload(const WorkloadContext& context,
                                                Assignment assignment) {
  return std::make_unique<EngineWorkload>(*this, context, std::move(assignment));
}

}  // namespace dstune::engine
