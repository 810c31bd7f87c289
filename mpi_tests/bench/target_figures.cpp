// How near calibration with a few runs of DeepSpeed brings the order of the others to DeepSpeed's:
//   calibration_figures SPACE.json TABLE.json [DRAWS]
// TABLE is what scripts/deepspeed_fidelity.py has written for the experiments of the space. Runs to
// calibrate with are drawn again and again; what is said is of the configurations left out.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "dstune/predict/step_predictor.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/search/planner.hpp"
#include "fixed_workspaces.hpp"

namespace dstune {
namespace {

struct Configuration {
  int stage = 0;
  double batch = 0;
  double deepspeed_s = 0;
  double here_s = 0;
  Overheads overheads{};
};

/// `source`: "measured" or "predicted".
std::vector<Configuration> read_table(const std::string& space_path, const std::string& table_path,
                                      const char* source) {
  const json::Document table = json::Document::read(table_path);
  const int ranks = table.root().at("ranks").get<int>();
  const JobSpec job = read_job(space_path, {}, std::nullopt, ranks);
  const FixedWorkspaces workspaces;
  OverheadCounter counter(job.model, workspaces);
  PlannerOptions options;
  options.device_memory_bytes = options.host_memory_bytes = INT64_MAX;
  const PlannedSpace space = plan_space(job, SearchSpace(job), workspaces, options);
  std::vector<Configuration> found;
  for (const json::Value& row : table.root().at("experiments")) {
    const auto member = std::find_if(
        space.members.begin(), space.members.end(),
        [&](const PlannedMember& each) { return row.at("name") == each.planned.experiment.name; });
    if (member == space.members.end()) throw Error("the table is of another space");
    const TrainingConfig& config = member->planned.experiment.config;
    const auto batch = static_cast<double>(global_batch(config, ranks));
    const auto runs = row.at("deepspeed").get<std::vector<double>>();
    double throughput = 0;
    for (const double run : runs) throughput += run / static_cast<double>(runs.size());
    found.push_back({config.zero_stage, batch, batch / throughput,
                     batch / row.at(source).get<double>(), counter.count(config, ranks)});
  }
  return found;
}

/// Of one draw.
struct Figures {
  double correlation = 0;
  double regret = 0;  ///< how much faster DeepSpeed's best is there than the best by this
  double error = 0;   ///< mean, of times
};

Figures figures_of(const std::vector<Configuration>& all, const TimeCalibration& fit) {
  std::vector<double> estimates, truth;
  Figures figures;
  for (const Configuration& one : all) {
    const double target_s = fit.target_s(one.here_s, one.overheads);
    estimates.push_back(one.batch / target_s);
    truth.push_back(one.batch / one.deepspeed_s);
    figures.error += std::abs(target_s / one.deepspeed_s - 1) / static_cast<double>(all.size());
  }
  figures.correlation = rank_correlation(estimates, truth).value_or(0);
  const auto best = std::max_element(estimates.begin(), estimates.end()) - estimates.begin();
  figures.regret =
      1 - truth[static_cast<std::size_t>(best)] / *std::max_element(truth.begin(), truth.end());
  return figures;
}

struct Draw {
  std::vector<Configuration> runs, others;
};

/// `num_runs` of them, all of different stages or any.
Draw draw(std::vector<Configuration> all, std::size_t num_runs, bool stages_differ,
          std::mt19937& random) {
  while (true) {
    for (std::size_t place = 0; place < num_runs; ++place)
      std::swap(all[place], all[place + random() % (all.size() - place)]);
    std::set<int> stages;
    for (std::size_t place = 0; place < num_runs; ++place) stages.insert(all[place].stage);
    if (stages_differ && stages.size() < num_runs) continue;
    const auto cut = all.begin() + static_cast<std::ptrdiff_t>(num_runs);
    return {{all.begin(), cut}, {cut, all.end()}};
  }
}

TimeCalibration fit_to(const std::vector<Configuration>& runs) {
  std::vector<CalibrationPoint> points;
  for (const Configuration& run : runs)
    points.push_back({run.here_s, run.deepspeed_s, run.overheads});
  return fit_time(points);
}

void print_row(const std::vector<Configuration>& all, std::size_t num_runs, bool stages_differ,
               int num_draws) {
  std::mt19937 random(1);
  std::vector<double> correlations;
  Figures fitted, scaled;
  int num_worse = 0;
  const auto add = [&](Figures& sum, const Figures& one) {
    sum.correlation += one.correlation / num_draws;
    sum.regret += one.regret / num_draws;
    sum.error += one.error / num_draws;
  };
  for (int count = 0; count < num_draws; ++count) {
    const Draw drawn = draw(all, num_runs, stages_differ, random);
    const Figures without = figures_of(drawn.others, fit_to({drawn.runs.front()}));
    const Figures with = figures_of(drawn.others, fit_to(drawn.runs));
    add(scaled, without);
    add(fitted, with);
    correlations.push_back(with.correlation);
    if (with.correlation < without.correlation) ++num_worse;
  }
  std::sort(correlations.begin(), correlations.end());
  std::printf("| %zu%s | %.3f | %.3f (%.3f) | %.0f %% | %.1f %% | %.1f %% | %.1f %% |\n", num_runs,
              stages_differ ? ", each of another stage" : "", scaled.correlation,
              fitted.correlation, correlations[correlations.size() / 20],
              100.0 * num_worse / num_draws, 100 * scaled.regret, 100 * fitted.regret,
              100 * fitted.error);
}

void print_table(const std::vector<Configuration>& all, const char* source, int num_draws) {
  std::printf(
      "| runs of %zu, times %s | rank correlation before | after (5 %% of the draws below) "
      "| worse after | regret before | after | mean error after |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n",
      all.size(), source);
  for (const std::size_t num_runs : {1U, 2U, 3U, 4U}) print_row(all, num_runs, false, num_draws);
  for (const std::size_t num_runs : {2U, 3U, 4U}) print_row(all, num_runs, true, num_draws);
  const TimeCalibration fit = fit_to(all);
  const Figures figures = figures_of(all, fit);
  std::printf("\nfitted to all: rank correlation %.3f, mean error %.1f %%; scale %.3f",
              figures.correlation, 100 * figures.error, fit.scale);
  for (std::size_t each = 0; each < fit.costs_s.size(); ++each)
    std::printf(", %.3g us for each %s", 1e6 * fit.costs_s[each],
                std::string(to_text(static_cast<Overhead>(each))).c_str());
  std::printf("\n\n");
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SPACE.json TABLE.json [DRAWS]\n", argv[0]);
    return 2;
  }
  try {
    for (const char* source : {"measured", "predicted"}) {
      dstune::print_table(dstune::read_table(argv[1], argv[2], source), source,
                          argc > 3 ? std::atoi(argv[3]) : 1000);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
