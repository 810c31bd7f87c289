#pragma once
/// Predictions of a recorded space: those of its moment, or those of another machine or network,
/// and how far they are from what was measured. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/space/job_spec.hpp"
#include "figure_tables.hpp"

namespace dstune::bench {

/// Whose predictions a recorded space gets. Nothing: those of the recording.
struct PredictionsOf {
  bool is_anew = false;  ///< made anew from the profile of the recording
  /// A file of --profile-out, or another table's NAME.made.json.
  std::optional<std::string> profile_path{};
  std::optional<std::string> device{};  ///< published rates of a GPU, by name

  [[nodiscard]] bool is_elsewhere() const { return profile_path || device; }
};

/// A profile does not say what a space needs.
struct CanNotPredict : Error {
  using Error::Error;
};

/// The profile that predicts a table, `made` being its NAME.made.json; nothing: the recording's
/// predictions stay. Throws InputError, Error.
[[nodiscard]] std::optional<DeviceProfile> profile_for(const json::Document& made,
                                                       const PredictionsOf& predictions);

/// Predicts all planned members. Throws CanNotPredict where the profile lacks what they do.
void predict(const JobSpec& job, const DeviceProfile& profile, PlannedSpace& space);

/// Throughputs that were predicted and measured, by the same places.
struct PredictedTable {
  std::string name;
  std::vector<double> by_recording, by_other, measured;
};
void print_predictions_heading(FigureTables& tables);
/// Prints a row: how far either predictions are from what was measured, and how far below the best
/// is what they take for the best.
void print_predictions(const PredictedTable& table, FigureTables& tables);

}  // namespace dstune::bench
