#!/usr/bin/env bash
# Experiments a second: 4,000 empty experiments (synthetic workload, groups of 2), each in the journal and with
# its files, beside a plain MPI program with the same durable records, in turns. Prints the figures of both.
#   mpi_tests/bench/experiments.sh [FOLDER [RANKS [TURNS]]]     (from the checkout, after building everything)
# FOLDER: a temporary one by default; a memory-backed folder shows what the disk takes. RANKS: 4. TURNS: 1.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
folder=$(mktemp -d -p "${1:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$folder"' EXIT
ranks=${2:-4}
build="$checkout/build/release"

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
for ((turn = 0; turn < ${3:-1}; ++turn)); do
  echo "load $(cut -d ' ' -f 1 /proc/loadavg)"
  mpirun -np "$ranks" --bind-to none "$build/bench/plain_dispatch" "$folder/plain.$turn"
  mpirun -np "$ranks" --bind-to none "$build/dstune-mpi" --no-progress --quiet \
    --results-dir "$folder/results.$turn" --exps-dir "$folder/exps.$turn" "$folder/space.json" | tail -n 2
  "$build/bench/job_figures" "$folder/results.$turn" "$ranks"
done
