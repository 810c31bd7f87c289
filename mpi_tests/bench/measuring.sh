#!/usr/bin/env bash
# How far reported values can be trusted, on a quiet machine. From the checkout, after building:
#   mpi_tests/bench/measuring.sh repeats [RANKS] [TRIAL_BUDGET_S] [RUNS]    (default: 2 2 100)
#     one configuration, run so many times: the run-to-run spread, and how many of the runs' intervals hold the mean of all,
#     those of their own steps (metrics.json) and those that are reported (results.csv)
#   mpi_tests/bench/measuring.sh steps [RANKS] [TRIAL_BUDGET_S]             (default: 2 2)
#     ten configurations, reported value against two independent runs of 200 steps, and these against each other
# Takes RUNS x (TRIAL_BUDGET_S + 1) s; and about 10 x (TRIAL_BUDGET_S + 400 steps).
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
what=${1:-}
ranks=${2:-2}
budget_s=${3:-2}
runs=${4:-100}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1

write_space() {  # FILE BUDGET_S LAST_STEP
  cat >"$1" <<JSON
{
  "dstune": {
    "model": {"family": "gpt2", "hidden_size": 128, "num_layers": 4, "num_heads": 4, "num_kv_heads": 4,
              "intermediate_size": 512, "vocab_size": 1024, "tie_embeddings": true, "max_positions": 256},
    "sequence_length": 64,
    "resources": {"num_gpus": $ranks},
    "trial_budget_s": $2,
    "target": "self"
  },
  "autotuning": {"enabled": true, "tuner_type": "gridsearch", "start_profile_step": 3, "end_profile_step": $3},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "train_micro_batch_size_per_gpu": [1, 2, 4, 8, 12],
  "gradient_accumulation_steps": 1,
  "zero_optimization": {"stage": [1, 3], "reduce_bucket_size": 1e6}
}
JSON
}

tune() {  # RESULTS SPACE OPTIONS...
  local results=$1 space=$2
  shift 2
  mpirun -np "$ranks" --bind-to none "$checkout/build/release/dstune-mpi" --quiet \
    --results-dir "$folder/$results" --exps-dir "$folder/$results.exps" "$@" "$folder/$space" >/dev/null
}

# name value ci_low ci_high of those that ended ok
values() {
  awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
    $column["status"] == "ok" { print $1, $column["throughput"], $column["ci_low"], $column["ci_high"] }' \
    "$folder/$1/results.csv" | sort
}

# the same, of the run's own steps
own_intervals() {
  for metrics in "$folder/$1"/*/metrics.json; do
    python3 -c 'import json, sys
run = json.load(open(sys.argv[1]))
if run["status"] == "ok": print("-", run["throughput"], run["ci_low"], run["ci_high"])' "$metrics"
  done
}

coverage() {  # WHAT; reads values
  awk -v what="$1" '
    { value[NR] = $2; low[NR] = $3; high[NR] = $4; sum += log($2); width += log($4 / $3) / 2 }
    END {
      mean = sum / NR
      for (i = 1; i <= NR; ++i) {
        squares += (log(value[i]) - mean) ^ 2
        covered += log(low[i]) <= mean && mean <= log(high[i])
      }
      printf "%d runs, mean %.4g samples/s, spread %.2f %%; %s: half width %.2f %%, %.0f %% hold the mean of all\n",
        NR, exp(mean), 100 * sqrt(squares / (NR - 1)), what, 100 * width / NR, 100 * covered / NR
    }'
}

case $what in
  repeats)
    write_space "$folder/space.json" "$budget_s" 5
    files=()
    for ((run = 1; run <= runs; ++run)); do
      file="$folder/run$run.json"
      cat >"$file" <<JSON
{"name": "run$run", "num_gpus": $ranks, "num_nodes": 1,
 "ds_config": {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
               "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
               "zero_optimization": {"stage": 1, "reduce_bucket_size": 1e6}}}
JSON
      files+=(--experiments "$file")
    done
    tune repeats space.json "${files[@]}"
    coverage "intervals by the runs' own steps" < <(own_intervals repeats)
    coverage "intervals that are reported" < <(values repeats)
    ;;
  steps)
    write_space "$folder/space.json" "$budget_s" 5
    write_space "$folder/long.json" 0.001 202
    tune reported space.json
    tune first long.json
    tune second long.json
    join <(values reported) <(join <(values first) <(values second)) | awk '
      function percent(x) { return 100 * (x < 0 ? -x : x) }
      BEGIN { print "| configuration | reported | 200 steps | again | reported/200 steps | again/200 steps |\n|---|---|---|---|---|---|" }
      { error = percent($2 / $5 - 1); again = percent($8 / $5 - 1); sum += error; sum_again += again
        if (error > worst) worst = error
        printf "| %s | %.4g | %.4g | %.4g | %.2f %% | %.2f %% |\n", $1, $2, $5, $8, error, again }
      END { printf "mean error %.2f %%, largest %.2f %%; two runs of 200 steps differ by %.2f %% on average\n", sum / NR, worst, sum_again / NR }'
    echo "The answer, measured again:"
    grep -A 4 -E '^(Fastest|Best)' "$folder/reported/summary.txt"
    ;;
  *)
    sed -n '2,8p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
