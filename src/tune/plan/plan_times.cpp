#include "plan/plan_times.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "dstune/predict/profiling_plan.hpp"
#include "dstune/predict/roofline.hpp"
#include "dstune/report/journal.hpp"

namespace dstune {
namespace {

/// Others' share of a host's processors that is told.
constexpr double told_use_of_others = 0.1;
/// An earlier job's profile counts where it has so much of the members' work.
constexpr double enough_is_known = 0.95;

/// The load while the host was timed, and its effect on the times.
std::string load_text(const MeasuredAlone& alone) {
  std::string text = fmt::format(
      "this host was timed beside others, who used {:.0f} % of its "
      "processors",
      100 * alone.used_by_others);
  if (alone.stolen >= told_use_of_others)
    text += fmt::format(" (other virtual machines {:.0f} %)", 100 * alone.stolen);
  text +=
      "; their time is left out, but caches and clock rates were shared, so that speeds may be "
      "too low";
  if (alone.has_shared_work) text += "; one thread was timed, and the others count as equally fast";
  return text;
}

/// "cpu (AMD EPYC, avx2" of "cpu (AMD EPYC, avx2, 2 threads)": another binding is the same machine.
std::string kind_of_device(const std::string& description) {
  return description.substr(0, description.rfind(','));
}

struct EarlierProfile {
  DeviceProfile profile;
  std::string journal;  ///< its path
};

/// The profile that an earlier job of the results folder measured on this kind of machine; nothing
/// where there is none, where it can not be read, or where it has too little of the members' work.
std::optional<EarlierProfile> earlier_profile(const PlannedJob& ready,
                                              const std::string& device_description) {
  const std::string path =
      (std::filesystem::path(ready.job.tuning.results_dir) / "journal.jsonl").string();
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return std::nullopt;
  try {
    const History history = understand(read_journal(path), path);
    if (history.profile_key.empty()) return std::nullopt;
    const json::Document document = json::Document::of(history.profile, path);
    EarlierProfile earlier{device_profile_from_json(document.node()), path};
    const json::Value kinds = earlier.profile.machine.value("devices", json::Value::array());
    for (const json::Value& kind : kinds)
      if (kind_of_device(kind.get<std::string>()) != kind_of_device(device_description))
        return std::nullopt;
    std::vector<const Experiment*> members;
    std::vector<Experiment> planned;
    visit_planned(ready, [&](const Experiment& member) { planned.push_back(member); });
    for (const Experiment& member : planned) members.push_back(&member);
    if (kinds.empty() ||
        known_share(ready.job.model, members, *ready.workspaces, earlier.profile) < enough_is_known)
      return std::nullopt;
    return earlier;
  } catch (const Error&) {
    // A journal that jobs refuse is none of the plan's.
  } catch (const json::Value::exception&) {
  }
  return std::nullopt;
}

std::unique_ptr<JobPredictor> predictor_of_profile(const PlannedJob& ready,
                                                   const DeviceProfile& profile) {
  auto predictor = std::make_unique<JobPredictor>(ready, profile);
  const double error = error_of_target(ready);
  if (error > 0) predictor->set_band(1 / (1 + error), 1 + error);
  return predictor;
}

std::unique_ptr<JobPredictor> predictor_of_this_host(const PlannedJob& ready, Device& device,
                                                     const std::string& device_description,
                                                     DryRun& plan) {
  if (const auto earlier = earlier_profile(ready, device_description)) {
    plan.sources.push_back({"times", "measured: " + earlier->journal});
    plan.assumptions.push_back("times are those that the job of " + ready.job.tuning.results_dir +
                               " measured on this machine");
    return predictor_of_profile(ready, earlier->profile);
  }
  MeasuredAlone alone = measure_alone(ready, device);
  if (alone.used_by_others >= told_use_of_others) plan.assumptions.push_back(load_text(alone));
  if (!alone.predictor) plan.no_speed = "no step of it can be timed in a second on this host";
  return std::move(alone.predictor);
}

}  // namespace

std::unique_ptr<JobPredictor> predictor_of_plan(const PlannedJob& ready, Device& device,
                                                const std::string& device_description,
                                                DryRun& plan) {
  const JobSpec& job = ready.job;
  std::string& no_speed = plan.no_speed;
  if (!is_predictable(ready) && !(job.is_by_engine() && is_planned(job))) {
    if (ready.space.planned > 0) no_speed = why_not_planned(job);
    return nullptr;
  }
  if (ready.time.is_over()) {
    no_speed = "the time limit ended the plan before";
    return nullptr;
  }
  if (job.target.trainable && (!job.cluster || job.machine_choice.profile)) {
    no_speed = "the steps that are timed train all parameters, unlike dstune.trainable";
    return nullptr;
  }
  std::unique_ptr<JobPredictor> predictor;
  if (!job.cluster) {
    predictor = predictor_of_this_host(ready, device, device_description, plan);
  } else if (ready.profile) {
    predictor = predictor_of_profile(ready, *ready.profile);
  } else {
    for (const GroupShape& shape : job.shapes)
      if (const std::string lacks = roofline_lacks(completed(*job.cluster), shape); !lacks.empty())
        no_speed = "the plan does not know " + lacks;
    if (!no_speed.empty()) return nullptr;
    return std::make_unique<JobPredictor>(ready, published_profile(*job.cluster));
  }
  if (predictor && ready.target) {
    TimeCalibration time = ready.target->time;
    if (const auto& profile = predictor->profile()) {
      time = priced_host(*ready.target, *profile).time;
      price_link(time, *profile, *predictor);
    }
    predictor->calibrate(time);
  }
  return predictor;
}

}  // namespace dstune
