#include "dstune/instrument/instrument.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/search/tuner.hpp"
#include "instruments.hpp"
#include "limits.hpp"

namespace dstune {
namespace {

const Policy::Timeouts& timeouts() {
  return default_policy().timeouts;
}

/// How long a GPU may take, after a failure, to do what it was asked for before it counts as one
/// that hangs. The host is two micro-steps ahead of it at most, and never a step; predictions of
/// that may be off by as much as above.
double drain_timeout_s(const std::optional<double>& step_s) {
  return step_s ? min_drain_timeout_s + timeouts().drain_timeout_steps * *step_s
                : timeouts().default_drain_timeout_s;
}

/// Without a prediction the operations of a very slow machine. Taking the host's memory, which is
/// pinned beside a GPU, is a silence, too.
double inactivity_timeout_s(const RunForecast& forecast) {
  const JobSpec& job = forecast.job;
  const Experiment& experiment = forecast.planned.experiment;
  const double timeout_s = timeouts().min_inactivity_timeout_s +
                           static_cast<double>(forecast.planned.predicted.host_memory_bytes) /
                               timeouts().min_host_bytes_per_s;
  if (forecast.step_s) return timeout_s + timeouts().inactivity_timeout_steps * *forecast.step_s;
  const auto tokens = static_cast<double>(batch_of(experiment) * job.sequence_length);
  return timeout_s + flops_per_token(job.model, job.sequence_length) * tokens /
                         (timeouts().min_flops_per_rank * experiment.shape.size());
}

const instrument::Maker& maker_of(const WorkloadSpec& spec) {
  const auto* const found =
      std::ranges::find(instrument::makers, to_text(spec.kind), &instrument::Maker::word);
  require(found != std::end(instrument::makers), "an instrument's word");
  return *found;
}

}  // namespace

RunLimits limits_of_foreign_code(const RunForecast& forecast) {
  return {std::max(timeouts().foreign_inactivity_timeout_s, forecast.trial_timeout_s.value_or(0)),
          forecast.is_on_gpus ? drain_timeout_s(forecast.step_s) : 0};
}

json::Value Instrument::identity(const JobSpec& /*job*/, const Experiment& /*experiment*/) const {
  return {{"kind", static_cast<int>(spec_.kind)},
          {"step_time_s", spec_.step_time_s},
          {"time_scale", spec_.time_scale},
          {"table", spec_.table}};
}

RunLimits Instrument::limits(const RunForecast& forecast) const {
  return {inactivity_timeout_s(forecast),
          forecast.is_on_gpus ? drain_timeout_s(forecast.step_s) : 0};
}

RunInput Instrument::input(const JobSpec& /*job*/, const Experiment& /*experiment*/) const {
  return {};
}

Problem Instrument::problem(const JobSpec& job, const std::string& message) const {
  const std::string pointer = "/dstune/workload";
  return job.document->problem(pointer, message);
}

std::unique_ptr<Instrument> make_instrument(const WorkloadSpec& spec) {
  return maker_of(spec).make(spec);
}

Instruments make_instruments(const std::vector<WorkloadSpec>& specs) {
  Instruments instruments;
  for (const WorkloadSpec& spec : specs) instruments.push_back(make_instrument(spec));
  return instruments;
}

Forecasts forecasts_of(const JobSpec& job) {
  const auto own =
      std::ranges::find(job.instruments, WorkloadKind::transformer, &WorkloadSpec::kind);
  return make_instrument(own == job.instruments.end() ? job.instruments.back() : *own)
      ->forecasts(job);
}

void complete_instruments(JobSpec& job) {
  for (WorkloadSpec& spec : job.instruments)
    if (const auto complete = maker_of(spec).complete) complete(job, spec);
}

bool races(const JobSpec& job, const InstrumentTraits& traits) {
  return tuner_races(job.tuning) && !(traits.takes_any_key && job.tuning.metric == Metric::flops);
}

}  // namespace dstune
