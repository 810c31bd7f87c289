#include "memory_predictor.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "search_fixture.hpp"

namespace dstune {
namespace {

class MemoryPredictorTest : public SearchTest {
 protected:
  /// Neither the model's elements nor any of its parameters divide by the groups' sizes.
  static ModelSpec uneven_model() {
    ModelSpec model = preset("gpt2");
    model.hidden_size = 22;
    model.num_heads = model.num_kv_heads = 2;
    model.head_size = 11;
    model.intermediate_size = 37;
    model.num_layers = 3;
    model.vocab_size = 101;
    model.max_positions = 33;
    return model;
  }

  static std::vector<TrainingConfig> configs(int stage) {
    std::vector<TrainingConfig> all;
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const std::int64_t bucket : {std::int64_t{500}, std::int64_t{500'000'000}}) {
        for (int knobs = 0; knobs < 16; ++knobs) {
          TrainingConfig config;
          config.zero_stage = stage;
          config.precision = precision;
          config.reduce_bucket_size = bucket;
          config.sequence_length = 16;
          config.accumulation_steps = 1 + knobs % 3;
          config.overlap_comm = (knobs & 1) != 0;
          config.reduce_scatter = (knobs & 2) != 0;
          config.contiguous_gradients = (knobs & 4) != 0;
          config.use_multi_rank_bucket_allreduce = (knobs & 8) != 0;
          all.push_back(config);
        }
      }
    }
    return all;
  }
};

TEST_F(MemoryPredictorTest, SaysOfEveryRankWhatItsOwnPlanSays) {
  JobSpec read = job(R"("zero_optimization": {"stage": 0})");
  read.model = uneven_model();
  for (int stage = 0; stage < 4; ++stage) {
    for (const int group_size : {1, 3, 5, 7}) {
      for (const TrainingConfig& config : configs(stage)) {
        Experiment experiment;
        experiment.shape = {group_size, 1};
        experiment.config = config;
        const Prediction predicted = MemoryPredictor(read, workspaces_).predict(experiment);
        int next = 0;
        std::int64_t fullest = 0;
        for (const RankMemory& alike : predicted.ranks) {
          ASSERT_EQ(alike.first, next) << "every rank once, in order";
          for (; next <= alike.last; ++next) {
            const auto memory =
                build_step_plan(read.model, config, group_size, next, workspaces_).memory;
            ASSERT_EQ(alike.peak_memory_bytes, memory.arena_bytes)
                << "stage " << stage << ", rank " << next << " of " << group_size;
            std::int64_t sum = 0;
            for (const auto& [name, bytes] : alike.categories) sum += bytes;
            ASSERT_EQ(sum, memory.arena_bytes);
            for (int category = 0; category < num_categories; ++category)
              ASSERT_EQ(alike.categories.at(std::string(to_text(static_cast<Category>(category)))),
                        memory.categories_at_peak.at(static_cast<std::size_t>(category)));
          }
          fullest = std::max(fullest, alike.peak_memory_bytes);
        }
        ASSERT_EQ(next, group_size);
        ASSERT_EQ(predicted.peak_memory_bytes, fullest);
      }
    }
  }
}

}  // namespace
}  // namespace dstune
