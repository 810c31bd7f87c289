/// The model's profile.

#include "dstune/model/parameter_table.hpp"
#include "target/target.hpp"

namespace dstune {

ModelProfile model_profile(const ModelSpec& model, const TrainingConfig& wanted,
                           const TargetSpec& target) {
  TrainingConfig config = wanted;
  config.micro_batch = 1;
  config.recompute = Recompute::none;
  const ParameterTable table(model);
  ModelProfile profile{.parameters = table.total_elements(),
                       .trainable_parameters = table.total_elements(),
                       .sequence_length = config.sequence_length,
                       .precision = config.precision,
                       .activation_bytes = {},
                       .loss_bytes = {},
                       .flops_per_token = flops_per_token(model, config.sequence_length)};
  plan::TargetCounts counts{};
  if (target.trainable) {
    counts.parts = plan::count_trained(table, *target.trainable);
    profile.parameters += counts.parts->added;
    profile.trainable_parameters = counts.parts->elements;
  }
  if (target.framework == TargetFramework::self) return profile;
  const plan::TargetActivations activations =
      plan::target_activations(model, counts, config, target);
  profile.activation_bytes = activations.kept;
  profile.loss_bytes = activations.logits;
  return profile;
}

}  // namespace dstune
