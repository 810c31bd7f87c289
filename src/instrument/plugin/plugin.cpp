#include "dstune/base/hash.hpp"
#include "dstune/comm/agreement.hpp"
#include "dstune/instrument/workloads.hpp"
#include "instruments.hpp"
#include "limits.hpp"

namespace dstune {
namespace {

/// A library of the user's, by its content.
std::string library_hash(const WorkloadSpec& spec) {
  return hash128(check_plugin_library(spec.library_path));
}

class Plugin : public Instrument {
 public:
  using Instrument::Instrument;

  [[nodiscard]] InstrumentTraits traits() const override {
    return {.name = "plugin", .source = "your plug-in", .takes_any_key = true, .may_hang = true};
  }
  [[nodiscard]] json::Value identity(const JobSpec& job,
                                     const Experiment& experiment) const override {
    json::Value identity = Instrument::identity(job, experiment);
    identity["options"] = spec_.options;
    identity["library_hash"] = spec_.library_hash;
    return identity;
  }
  [[nodiscard]] Forecasts forecasts(const JobSpec& /*job*/) const override {
    return {.judges_here = false, .judges_target = false};
  }
  [[nodiscard]] RunLimits limits(const RunForecast& forecast) const override {
    return limits_of_foreign_code(forecast);
  }
  [[nodiscard]] RunInput input(const JobSpec& /*job*/,
                               const Experiment& experiment) const override {
    return {.ds_config = experiment.ds_config.dump()};
  }
  [[nodiscard]] Problem problem(const JobSpec& job, const std::string& message) const override {
    const std::string pointer = "/dstune/workload/library";
    return job.document->problem(pointer, message);
  }

  /// The file passes the check on all ranks, and is the one that rank 0 has seen, before any of it
  /// runs.
  Started start(const StartContext& context) override {
    Started started;
    started.violation = first_violation(context.world, [&] {
      if (library_hash(spec_) != spec_.library_hash)
        throw Error(spec_.library_path +
                    " is another file than on rank 0: put the same one on every host");
    });
    if (!started.violation.empty()) return started;
    bool hangs = false;
    started.violation = first_violation(context.world, [&] {
      try {
        load_plugin(spec_.library_path,
                    {.on_own_thread = context.has_threads, .timeout_s = context.plugin_timeout_s});
      } catch (const ConstructorHangs&) {
        hangs = true;
        throw;
      }
    });
    if (!started.violation.empty())
      for (const std::string& word : gather_texts(context.world, hangs ? "hangs" : ""))
        started.hangs = started.hangs || !word.empty();
    return started;
  }
  [[nodiscard]] std::unique_ptr<Workload> make(const RunContext& context) override {
    WorkloadContext own = context;
    own.ds_config = &context.input->ds_config;
    own.settled = &settled_;
    return make_plugin_workload(spec_, own);
  }

 private:
  SettledSteps settled_;
};

}  // namespace

namespace instrument {

void complete_plugin(JobSpec& /*job*/, WorkloadSpec& spec) {
  spec.library_hash = library_hash(spec);
}
std::unique_ptr<Instrument> plugin(const WorkloadSpec& spec) {
  return std::make_unique<Plugin>(spec);
}

}  // namespace instrument

}  // namespace dstune
