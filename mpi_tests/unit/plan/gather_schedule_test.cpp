/// Gathers and releases of DeepSpeed itself (scripts/tools/deepspeed_gathers.py), against the
/// schedule.

#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "zero/gathering.hpp"

namespace dstune::plan {
namespace {

using Names = std::vector<std::string>;

class GatherScheduleTest : public testing::TestWithParam<int> {
 protected:
  static const json::Value& vectors() {
    static const auto document = json::Document::read(DSTUNE_DEEPSPEED_GATHERS);
    return document.root();
  }

  static ModelSpec model(const json::Value& vector) {
    const json::Value& sizes = (vector.contains("model") ? vector : vectors()).at("model");
    const bool gpt2 = vector.at("family") == "gpt2";
    ModelSpec result;
    result.architecture = architecture_of(gpt2 ? ModelFamily::gpt2 : ModelFamily::llama);
    result.family = gpt2 ? ModelFamily::gpt2 : ModelFamily::llama;
    sizes.at("hidden_size").get_to(result.hidden_size);
    sizes.at("num_layers").get_to(result.num_layers);
    sizes.at("intermediate_size").get_to(result.intermediate_size);
    sizes.at("vocab_size").get_to(result.vocab_size);
    sizes.at("max_positions").get_to(result.max_positions);
    result.num_heads = gpt2 ? 2 : 4;
    result.num_kv_heads = 2;
    result.head_size = gpt2 ? result.hidden_size / 2 : 6;
    result.tie_embeddings = gpt2;
    result.dropout = vector.value("dropout", gpt2 ? 0.1 : 0.0);
    return result;
  }

  static TrainingConfig config(const json::Value& vector) {
    TrainingConfig result;
    result.zero_stage = 3;
    vector.at("accumulation").get_to(result.accumulation_steps);
    if (vector.value("recompute", false)) result.recompute = Recompute::block;
    const json::Value& zero = vector.at("zero");
    const json::Value none = json::Value::object();
    const json::Value& disk = vector.contains("disk") ? vector.at("disk") : none;
    for_each_member(result, [&](const char* name, auto& member) {
      for (const json::Value* each : {&zero, &disk})
        if (each->contains(name)) each->at(name).get_to(member);
    });
    if (vector.contains("disk")) result.offload_param = OffloadDevice::nvme;
    const json::Value& leaves = zero.contains("leaf_module") ? zero.at("leaf_module") : none;
    const auto lines = [&leaves](const char* key, std::string& text) {
      if (!leaves.contains(key)) return;
      for (const auto& line : leaves.at(key)) text += line.get<std::string>() + '\n';
    };
    lines("classes", result.leaf_modules.classes);
    lines("names", result.leaf_modules.names);
    lines("name_suffixes", result.leaf_modules.name_suffixes);
    return result;
  }

  /// The Hugging Face names of the pieces.
  static Names names(const Layout& layout) {
    Names result;
    for (const Parameter& parameter : layout.table().all()) {
      std::istringstream parts(parameter.name);
      for (std::string name; std::getline(parts, name, '+');) {
        const bool prefixed = name.starts_with("model.") || name.starts_with("lm_head.");
        result.push_back(prefixed ? name : "transformer." + name);
      }
    }
    return result;
  }
};

/// Gathers in their order, each as a set, and everything released between two of them; what is read
/// from the disk, and how many gathers were begun before it or for it.
struct Log {
  std::vector<std::set<std::string>> gathers, releases{{}};
  struct Read {
    bool is_ahead;
    std::size_t gathers;
    std::set<std::string> names;
    bool operator==(const Read&) const = default;
  };
  std::vector<Read> reads;

  void gather(std::set<std::string> names) {
    if (names.empty()) return;
    gathers.push_back(std::move(names));
    releases.emplace_back();
  }
  void release(const std::string& name) { releases.back().insert(name); }
  void read(bool is_ahead, std::set<std::string> names) {
    if (!names.empty()) reads.push_back({is_ahead, gathers.size(), std::move(names)});
  }
};

Log log_of(const ModuleTrace& trace, const MicroStepGathers& gathers, const Names& names) {
  Log log;
  const auto named = [&](std::span<const int> pieces) {
    std::set<std::string> result;
    for (const int piece : pieces) result.insert(names[static_cast<std::size_t>(piece)]);
    return result;
  };
  const auto read = [&](std::span<const ShardRead> reads) {
    std::vector<int> pieces;
    for (const ShardRead& each : reads) pieces.push_back(each.piece);
    return named(pieces);
  };
  for (const TraceEvent& event : trace.events) {
    const int visit = event.visit;
    if (event.kind == TraceEvent::Kind::fetch) {
      log.gather(named(gathers.fetched[visit]));
      log.read(false, read(gathers.read[visit]));
      log.gather(named(gathers.prefetched[visit]));
      log.read(true, read(gathers.read_ahead[visit]));
    } else {
      for (const int piece : gathers.released[visit])
        log.release(names[static_cast<std::size_t>(piece)]);
    }
  }
  return log;
}

Log log_of(const json::Value& micro_step) {
  Log log;
  for (const auto& entry : micro_step) {
    const auto words = entry.get<Names>();
    if (words.front() == "gather") {
      log.gather({words.begin() + 1, words.end()});
    } else if (words.front().starts_with("read")) {
      log.read(words.front() == "read_ahead", {words.begin() + 1, words.end()});
    } else {
      log.release(words.at(1));
    }
  }
  return log;
}

TEST_F(GatherScheduleTest, IsDeepSpeeds) {
  int compared = 0;
  std::size_t reads = 0;
  for (const auto& vector : vectors().at("cases")) {
    const ModelSpec model = GatherScheduleTest::model(vector);
    const ParameterTable table(model);
    const TrainingConfig config = GatherScheduleTest::config(vector);
    const Layout layout(table, 3, {2, 0}, {false, are_parameters_offloaded(config)});
    const Gathering gathering = plan_gathering(model, layout, config);
    const auto& micro_steps = vector.at("micro_steps");
    const bool failed = micro_steps.back().at(0).at(0) == "failed";
    ASSERT_EQ(!gathering.failure.empty(), failed) << vector.at("name") << gathering.failure;
    if (failed) continue;
    for (std::size_t step = 0; step < micro_steps.size(); ++step) {
      const bool second = step == 1 && config.accumulation_steps > 1;
      const MicroStepGathers& gathers =
          step == 0 ? gathering.traced->first : (second ? gathering.second : gathering.steady);
      const Log ours = log_of(gathering.traced->trace, gathers, names(layout));
      const Log theirs = log_of(micro_steps[step]);
      ASSERT_EQ(ours.gathers, theirs.gathers)
          << vector.at("family") << " " << vector.at("name") << " " << step;
      ASSERT_EQ(ours.releases, theirs.releases)
          << vector.at("family") << " " << vector.at("name") << " " << step;
      ASSERT_EQ(ours.reads, theirs.reads)
          << vector.at("family") << " " << vector.at("name") << " " << step;
      reads += ours.reads.size();
      ++compared;
    }
  }
  EXPECT_GE(compared, 60);
  EXPECT_GE(reads, 100U);
}

}  // namespace
}  // namespace dstune::plan
