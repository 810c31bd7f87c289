#include "target/trial_runs.hpp"

#include <variant>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "watch/waiting.hpp"

namespace dstune {

TrialEnd TrialRuns::run(const Trial& trial) {
  Attempts& attempts = driver_.attempts();
  message::Assign order{.experiment = trial.experiment->name,
                        .config = trial.experiment->config,
                        .world_ranks = options_.world_ranks,
                        .input = trial.input,
                        .instrument = trial.instrument,
                        .tiny = message::Tiny{*trial.model, trial.measure}};
  attempts.begin(std::move(order),
                 {.timeout_s = trial.timeout_s,
                  .overdue = "took longer than " + format_duration(trial.timeout_s),
                  .abort_grace_s = options_.abort_grace_s,
                  .drain_timeout_s = trial.drain_timeout_s},
                 driver_.now());
  TrialEnd end;
  IdleBackoff idle;
  for (;;) {
    driver_.listen();
    for (Attempts::Event& event : attempts.take_events()) {
      auto* const ended = std::get_if<Attempts::Ended>(&event);
      if (ended == nullptr) continue;
      for (const std::string& note : ended->notes)
        log::info(fmt::format(log_text::tiny_engine_note, note));
      end.is_last = end.is_last || !ended->unusable.empty();
      end.measurement = std::move(ended->measurement);
    }
    if (!end.is_last && options_.is_to_be_ended && options_.is_to_be_ended()) {
      end.is_last = true;
      attempts.abort(driver_.now());
    }
    driver_.speak();
    if (attempts.is_empty()) return end;
    idle.pause();
  }
}

}  // namespace dstune
