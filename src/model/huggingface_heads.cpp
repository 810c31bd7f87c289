/// Reads the heads of encoders: masked tokens, or classes of sequences, of tokens, or spans.

#include <fmt/format.h>

#include "reading.hpp"

namespace dstune::model {
namespace {

struct KnownHead {
  std::string_view architecture;  ///< the end of its class
  Objective objective;
};
constexpr KnownHead heads[] = {{"BertForSequenceClassification", Objective::sequence_class},
                               {"BertForTokenClassification", Objective::token_class},
                               {"BertForQuestionAnswering", Objective::spans}};

const KnownHead* head_of(std::string_view architecture) {
  for (const KnownHead& head : heads)
    if (architecture.ends_with(head.architecture)) return &head;
  return nullptr;
}

/// transformers counts the names of classes; without them and a number there are two.
std::int64_t labels_of(const Config& config) {
  const auto names = config.find({"id2label"});
  if (names && names->expect_object(config.problems()))
    return static_cast<std::int64_t>(names->value().size());
  return config.size({"num_labels"}, 2);
}

}  // namespace

bool is_encoder_head(std::string_view architecture) {
  return head_of(architecture) != nullptr;
}

void Config::read_head(ModelSpec& spec) const {
  const auto architectures = find({"architectures"});
  if (!architectures || !architectures->is_array() || architectures->elements().empty()) return;
  const json::Node named = architectures->elements().front();
  const auto word = named.string(problems_);
  const KnownHead* const head = word ? head_of(*word) : nullptr;
  if (head == nullptr) return;
  spec.architecture.objective = head->objective;
  spec.tie_embeddings = false;
  spec.labels = labels_of(*this);
  const auto at = find({"id2label", "num_labels"}).value_or(named);
  if (head->objective == Objective::spans && spec.labels != 2) {
    refuse(at,
           fmt::format(
               "{} labels are not built in {}; only 2 are: for the beginning and the end of a span",
               spec.labels, *word));
  } else if (spec.labels < 2) {
    refuse(at, fmt::format("{} label is not built in {} (a regression has one); give 2 or more",
                           spec.labels, *word));
  }
  if (head->objective != Objective::sequence_class) return;
  const auto problem = find({"problem_type"});
  const auto kind = problem ? problem->string(problems_) : std::nullopt;
  if (kind && *kind != "single_label_classification") {
    refuse(*problem, fmt::format("problem_type \"{}\" is not built; only "
                                 "\"single_label_classification\" is",
                                 *kind));
  }
}

}  // namespace dstune::model
