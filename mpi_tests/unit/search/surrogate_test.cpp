#include "surrogate.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace dstune {
namespace {

/// `count` points on a line and one feature that means nothing.
Points line(std::size_t count) {
  Points points;
  points.num_features = 2;
  points.size = count;
  for (std::size_t point = 0; point < count; ++point) {
    points.features.push_back(static_cast<double>(point) / static_cast<double>(count - 1));
    points.features.push_back(static_cast<double>(point % 2));
  }
  return points;
}

void learn(Surrogate& surrogate, const std::vector<Sample>& samples) {
  surrogate.learn(samples);
  surrogate.condition(samples);
}

TEST(SurrogateTest, PassesThroughWhatWasMeasuredAndIsUnsureFarAway) {
  const Points points = line(21);
  Surrogate surrogate(points);
  const std::vector<Sample> samples = {{0, 0.0, 1e-3}, {5, 0.2, 1e-3}, {10, 0.1, 1e-3}};
  learn(surrogate, samples);
  for (const Sample& sample : samples) {
    EXPECT_NEAR(surrogate.at(sample.point).mean, sample.value, 5e-3);
    EXPECT_LT(surrogate.at(sample.point).deviation, 5e-3);
  }
  EXPECT_GT(surrogate.at(20).deviation, 5 * surrogate.at(5).deviation);
}

TEST(SurrogateTest, LearnsALinearEffectFromFewSamples) {
  const Points points = line(41);
  Surrogate surrogate(points);
  std::vector<Sample> samples;
  for (const std::size_t point : {0, 7, 12, 21, 26, 33})
    samples.push_back({point, 0.3 * points[point][0], 1e-3});
  learn(surrogate, samples);
  EXPECT_NEAR(surrogate.at(40).mean, 0.3, 0.03);
}

TEST(SurrogateTest, ADifferenceIsSurerThanItsPartsWhereTheyMoveTogether) {
  const Points points = line(41);
  Surrogate surrogate(points);
  const std::vector<Sample> samples = {{0, 0.1, 1e-3}};
  surrogate.condition(samples);
  const Posterior difference = surrogate.difference(38, 40);
  EXPECT_NEAR(difference.mean, surrogate.at(38).mean - surrogate.at(40).mean, 1e-12);
  EXPECT_LT(difference.deviation, surrogate.at(38).deviation);
  EXPECT_DOUBLE_EQ(surrogate.difference(7, 7).deviation, 0);
}

TEST(SurrogateTest, TheChanceOfAnyAgreesWithTheChanceOfOne) {
  const Points points = line(11);
  Surrogate surrogate(points);
  const std::vector<Sample> samples = {{0, 0.0, 1e-3}, {4, 0.05, 1e-2}};
  surrogate.condition(samples);
  const Surrogate::Challenger challenger{10, -0.02};
  Posterior posterior = surrogate.difference(challenger.point, 4);
  posterior.mean += challenger.offset;
  EXPECT_NEAR(surrogate.chance_of_any(std::vector{challenger}, 4, 7, 2000),
              chance_above_zero(posterior), 0.04);
  // Of several the chance is at least that of one, and no more than their sum.
  const std::vector<Surrogate::Challenger> challengers = {challenger, {8, -0.02}, {2, -0.02}};
  const double any = surrogate.chance_of_any(challengers, 4, 7, 2000);
  EXPECT_GE(any, surrogate.chance_of_any(std::vector{challenger}, 4, 7, 2000) - 0.04);
  EXPECT_EQ(any, surrogate.chance_of_any(challengers, 4, 7, 2000))
      << "the same seed, the same draws";
}

TEST(SurrogateTest, IsHonestAboutWhatItDoesNotKnow) {
  // Half of the points measured, the others held against what is believed of them: of standard
  // deviations, few are far off.
  std::mt19937_64 random(3);
  const Points points = line(40);
  int outside = 0;
  int all = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto phase = static_cast<double>(random() % 1000) / 100;
    std::vector<double> truth;
    for (std::size_t point = 0; point < points.size; ++point)
      truth.push_back(0.1 * std::sin(5 * points[point][0] + phase) + 0.05 * points[point][1]);
    std::vector<Sample> samples;
    for (std::size_t point = 0; point < points.size; ++point)
      if (random() % 3 == 0) samples.push_back({point, truth[point], 2e-3});
    if (samples.size() < 5) continue;
    Surrogate surrogate(points);
    learn(surrogate, samples);
    for (std::size_t point = 0; point < points.size; ++point) {
      const Posterior posterior = surrogate.at(point);
      outside +=
          std::abs(truth[point] - posterior.mean) > 2.58 * posterior.deviation + 1e-3 ? 1 : 0;
      ++all;
    }
  }
  EXPECT_LT(outside, all / 20);
}

/// Five sizes of a knob, and three words of another one: 15 points.
Points words_and_sizes() {
  Points points;
  points.num_features = 4;
  points.knobs = {0, 1, 1, 1};
  for (const double size : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    for (const int word : {0, 1, 2}) {
      points.features.push_back(size);
      for (const int other : {0, 1, 2}) points.features.push_back(word == other ? 1 : 0);
      ++points.size;
    }
  }
  return points;
}

TEST(SurrogateTest, AValueThatNobodyTriedStaysOpen) {
  const Points points = words_and_sizes();
  Surrogate surrogate(points);
  // Of the first word all sizes are as predicted.
  std::vector<Sample> samples;
  for (const std::size_t point : {0, 3, 6, 9, 12}) samples.push_back({point, 0, 2e-3});
  learn(surrogate, samples);
  EXPECT_GT(surrogate.difference(1, 0).deviation, 0.05);
  // One size of the second word says what it brings to all of them.
  samples.push_back({7, 0.1, 2e-3});
  learn(surrogate, samples);
  EXPECT_NEAR(surrogate.at(13).mean, 0.1, 0.03);
  EXPECT_LT(surrogate.difference(13, 12).deviation, 0.05);
  EXPECT_GT(surrogate.difference(14, 12).deviation, 0.05) << "nothing of the third one is known";
}

/// `side` values of each of two knobs.
Points grid(std::size_t side) {
  Points points;
  points.num_features = 2;
  points.size = side * side;
  for (std::size_t point = 0; point < points.size; ++point)
    for (const std::size_t place : {point / side, point % side})
      points.features.push_back(static_cast<double>(place) / static_cast<double>(side - 1));
  points.knobs = {0, 1};
  return points;
}

/// How unsure the last point is after all with the first value of either knob were measured. Every
/// second value of either brings much.
double doubt_of_corner(const Points& points, std::size_t side,
                       const std::vector<double>& predicted) {
  Surrogate surrogate(points, predicted);
  std::vector<Sample> samples;
  for (std::size_t point = 0; point < points.size; ++point) {
    const std::size_t row = point / side, column = point % side;
    if (row == 0 || column == 0)
      samples.push_back({point, (row % 2 == 1 ? 0.8 : 0) - (column % 2 == 1 ? 0.6 : 0), 1e-2});
  }
  learn(surrogate, samples);
  return surrogate.at(points.size - 1).deviation;
}

TEST(SurrogateTest, WithoutPredictionsWhatBringsMuchMayBringAnotherAmountTogether) {
  const Points points = grid(4);
  std::vector<double> predicted(points.size, 1);
  const double unpredicted = doubt_of_corner(points, 4, predicted);
  predicted.back() = 1.01;
  EXPECT_GT(unpredicted, doubt_of_corner(points, 4, predicted));
}

TEST(SurrogateTest, AStageStaysOpenOnGroupsOnWhichItDidNotRun) {
  Points points = grid(4);
  std::vector<double> predicted(points.size, 1);
  predicted.back() = 1.01;
  points.pairs = {{1, 0}};
  const double of_any_pair = doubt_of_corner(points, 4, predicted);
  points.of_shape = {1};
  EXPECT_GT(doubt_of_corner(points, 4, predicted), of_any_pair);
}

TEST(SurrogateTest, LearnsThatPredictionsAreOfSomethingElse) {
  const Points points = line(20);
  std::vector<double> predicted;
  for (std::size_t point = 0; point < points.size; ++point)
    predicted.push_back(std::sin(static_cast<double>(point * point)));
  // All take the same: what is measured differs from the prediction by the prediction.
  std::vector<Sample> samples;
  for (std::size_t point = 0; point < points.size; point += 2)
    samples.push_back({point, -predicted[point], 2e-3});
  Surrogate surrogate(points, predicted);
  learn(surrogate, samples);
  for (std::size_t point = 1; point < points.size; point += 2)
    EXPECT_NEAR(surrogate.at(point).mean, -predicted[point], 0.1) << point;
}

TEST(SurrogateTest, MembersShareWhatIsUnknownOfPredictions) {
  const Points points = line(20);
  // The first unknown concerns every third point, the second none that is measured.
  std::vector<std::vector<double>> unknowns;
  for (std::size_t point = 0; point < points.size; ++point)
    unknowns.push_back({point % 3 == 0 ? 0.3 : 0.0, point % 3 == 1 ? 0.3 : 0.0});
  unknowns[5].clear();
  const std::vector<Sample> samples = {{0, 0.2, 1e-2}, {6, 0.2, 1e-2}, {2, 0, 1e-2}, {8, 0, 1e-2}};
  Surrogate surrogate(points, {}, unknowns);
  surrogate.condition(samples);
  EXPECT_NEAR(surrogate.difference(9, 5).mean, 0.2, 0.03);
  EXPECT_LT(surrogate.difference(9, 5).deviation, 0.1);
  EXPECT_GT(surrogate.difference(10, 5).deviation, 0.25);
}

TEST(SurrogateTest, TrustMakesPosteriorsWider) {
  const Points points = line(11);
  Surrogate surrogate(points);
  surrogate.condition(std::vector<Sample>{{0, 0.0, 1e-3}, {4, 0.05, 1e-2}});
  const Posterior before = surrogate.difference(10, 4);
  surrogate.trust(2, true);
  const Posterior after = surrogate.difference(10, 4);
  EXPECT_DOUBLE_EQ(after.deviation, 2 * before.deviation);
  EXPECT_TRUE(after.has_heavy_tails);
  Posterior posterior = after;
  posterior.mean -= 0.1;
  EXPECT_NEAR(surrogate.chance_of_any(std::vector<Surrogate::Challenger>{{10, -0.1}}, 4, 7, 2000),
              chance_above_zero(posterior), 0.04);
}

void note_eight(TrackRecord& record, double one, double other) {
  for (int count = 0; count < 8; ++count) record.note(count % 2 == 0 ? one : other);
}

TEST(TrackRecordTest, HoldsWhereErrorsAreWithinTheirSpread) {
  TrackRecord record;
  EXPECT_EQ(record.scale(), 1);
  for (const double error : {0.5, -1.0, 1.2, 0.1, -0.3, 0.8, -1.5}) {
    record.note(error);
    EXPECT_FALSE(record.holds()) << "fewer than eight say too little";
  }
  record.note(0.4);
  EXPECT_TRUE(record.holds());
  EXPECT_FALSE(record.has_heavy_tails());
  EXPECT_NEAR(record.scale(), 0.90, 0.02);
}

TEST(TrackRecordTest, LargeErrorsWidenUntilTheyFit) {
  TrackRecord record;
  note_eight(record, 3, -3);
  EXPECT_NEAR(record.scale(), std::sqrt((2 + 8 * 9) / 10.0), 1e-9);
  EXPECT_FALSE(record.holds()) << "they were wider than was known";
  note_eight(record, 3, -3);
  EXPECT_TRUE(record.holds()) << "by then it was";
}

TEST(TrackRecordTest, NarrowsNoFurtherThanSomeShare) {
  TrackRecord record;
  for (int count = 0; count < 40; ++count) record.note(0.01);
  EXPECT_EQ(record.scale(), 0.6);
}

TEST(TrackRecordTest, NeverNarrowsWhereItMayNot) {
  TrackRecord record(default_policy().surrogate, false);
  note_eight(record, 0.01, -0.01);
  EXPECT_EQ(record.scale(), 1);
  EXPECT_TRUE(record.holds());
  note_eight(record, 3, -3);
  EXPECT_GT(record.scale(), 1.5);
}

TEST(TrackRecordTest, EachErrorMakesTheUnforeseenLessLikely) {
  TrackRecord record;
  EXPECT_DOUBLE_EQ(record.chance_unforeseen(), 0.125);
  double before = record.chance_unforeseen();
  for (int count = 1; count <= 8; ++count) {
    record.note(0.5);
    EXPECT_LT(record.chance_unforeseen(), before);
    before = record.chance_unforeseen();
  }
  EXPECT_DOUBLE_EQ(before, 0.025);
}

TEST(TrackRecordTest, OneFarOffMakesTailsHeavy) {
  TrackRecord record;
  note_eight(record, 0.5, -0.7);
  EXPECT_FALSE(record.has_heavy_tails());
  record.note(6);
  EXPECT_TRUE(record.has_heavy_tails());
  note_eight(record, 0.5, -0.7);
  EXPECT_TRUE(record.holds());
  record.note(6);
  EXPECT_TRUE(record.holds()) << "where tails are heavy, one of eight may be so far off";
  record.note(-20);
  EXPECT_FALSE(record.holds()) << "so far it may not";
}

TEST(PosteriorTest, HeavyTailsAreStudentsOfFourDegrees) {
  EXPECT_DOUBLE_EQ(chance_above_zero({0, 1, true}), 0.5);
  EXPECT_NEAR(chance_above_zero({2.776445, 1, true}), 0.975, 1e-6);
  EXPECT_NEAR(chance_above_zero({-4.604095, 1, true}), 0.005, 1e-6);
}

TEST(PosteriorTest, ChancesAndExcessesOfANormalNumber) {
  EXPECT_DOUBLE_EQ(chance_above_zero({0, 1}), 0.5);
  EXPECT_NEAR(chance_above_zero({1.959964, 1}), 0.975, 1e-6);
  EXPECT_EQ(chance_above_zero({-1, 0}), 0);
  EXPECT_NEAR(expected_improvement({0, 1}), 1 / std::sqrt(2 * 3.14159265358979), 1e-9);
  EXPECT_EQ(expected_improvement({-1, 0}), 0);
  EXPECT_EQ(expected_improvement({2, 0}), 2);
}

}  // namespace
}  // namespace dstune
