#!/usr/bin/env bash
# Experiments a second: 4,000 empty experiments (synthetic workload, groups of 2 on 4 ranks), each in the
# journal and with its files; prints the job's own figures. From the checkout, after building everything:
#   mpi_tests/bench/experiments.sh [FOLDER]      (default: a temporary one; a memory-backed folder shows
#                                                 what the disk takes)
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
folder=$(mktemp -d -p "${1:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$folder"' EXIT

micro_batches=$(seq -s, 1 200)
cat >"$folder/space.json" <<JSON
{
  "dstune": {"model": "gpt2", "workload": {"type": "synthetic", "step_time_s": 0.0}, "resources": {"num_gpus": 2}, "target": "self"},
  "autotuning": {"enabled": true, "tuner_type": "gridsearch"},
  "train_micro_batch_size_per_gpu": [$micro_batches],
  "gradient_accumulation_steps": [1, 2, 3, 4, 5],
  "zero_optimization": {"stage": [0, 1, 2, 3]}
}
JSON
export OMP_NUM_THREADS=1
mpirun -np 4 --bind-to none "$checkout/build/release/dstune-mpi" --no-progress --quiet \
  --results-dir "$folder/results" --exps-dir "$folder/exps" "$folder/space.json" | tail -n 2
"$checkout/build/release/bench/job_figures" "$folder/results" 4
