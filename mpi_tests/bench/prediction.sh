#!/usr/bin/env bash
# Predicted against measured throughput: a small GPT-2 in 48 configurations (stages, micro-batches, accumulation,
# buckets) on groups of so many ranks, one at a time; prints the summary's table. None of them was run to fit
# the model, which comes from a few steps of cut-down plans. From the checkout, after building everything:
#   mpi_tests/bench/prediction.sh [RANKS] [fp32|bf16] [TRIAL_BUDGET_S]      (default: 2 fp32 2)
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
ranks=${1:-2}
precision=${2:-fp32}
budget_s=${3:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
half=""
[[ $precision == fp32 ]] || half="\"$precision\": {\"enabled\": true},"
cat >"$folder/space.json" <<JSON
{
  "dstune": {
    "model": {"family": "gpt2", "hidden_size": 256, "num_layers": 6, "num_heads": 4, "num_kv_heads": 4,
              "intermediate_size": 1024, "vocab_size": 8192, "tie_embeddings": true, "max_positions": 256},
    "sequence_length": 128,
    "resources": {"num_gpus": $ranks},
    "trial_budget_s": $budget_s,
    "target": "self"
  },
  "autotuning": {"enabled": true, "tuner_type": "gridsearch"},
  $half
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "train_micro_batch_size_per_gpu": [1, 2, 4, 8],
  "gradient_accumulation_steps": [1, 2, 4],
  "zero_optimization": {"stage": [0, 1, 2, 3], "reduce_bucket_size": 1e6}
}
JSON
export OMP_NUM_THREADS=1
mpirun -np "$ranks" --bind-to none "$checkout/build/release/dstune-mpi" --no-progress --quiet \
  --results-dir "$folder/results" --exps-dir "$folder/exps" "$folder/space.json"
