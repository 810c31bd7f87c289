#!/usr/bin/env bash
# Do the engine's examples run with the newest PyTorch, DeepSpeed, transformers, accelerate and peft?
#   scripts/tools/check_newest.sh [FOLDER]
# For a release of dstune-mpi, and now and then. It makes an environment of what is newest, not of what
# scripts/engine/constraints.txt says, and builds the operators of AdamW. It tunes each example of
# scripts/spaces/engine on 1 and 2 ranks, then launches the answers of 2 ranks by cmd_optimal.txt for
# a few steps. It prints a table; the exit code is 1 where something failed.
#
# FOLDER keeps environment and logs, and an environment that it has is taken again. Without it they go
# to a temporary folder (6 GB), which stays where something failed. TRIALS changes the experiments of a
# job (4), PROGRAM names a dstune-mpi that is built, DSTUNE_TORCH_INDEX an index for PyTorch.
set -euo pipefail
case ${1:-} in
  -h | --help | help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
# shellcheck source=scripts/setup.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../setup.sh"

examples=$checkout/scripts/spaces/engine
scratch=${1:-$(mktemp -d "${TMPDIR:-/tmp}/dstune-newest-XXXXXX")}
mkdir -p "$scratch"
scratch=$(cd -- "$scratch" && pwd -P)
environment=$scratch/environment
python=$environment/bin/python
steps_wanted=5
launch_limit_s=600
job_limit_s=1200
# DeepSpeed's own launch on CPUs compiles its all-reduce.
export TORCH_EXTENSIONS_DIR=$scratch/extensions

table=()
failed=0
# row WHAT VERSION OUTCOME
row() {
  table+=("| $1 | $2 | $3 |")
  say "$1${2:+ $2}: $3"
}
fail() {
  failed=1
  row "$1" "$2" "FAILED: $3"
}
finish() {
  printf '| what | version | outcome |\n| --- | --- | --- |\n'
  printf '%s\n' "${table[@]}"
  if [[ $failed -eq 0 && -z ${1:-} ]]; then
    rm -rf -- "$scratch"
  else
    say "Logs and environment: $scratch"
  fi
  exit "$failed"
}

# NAME VERSION PINNED of each package that was asked for, and of others whose version differs from the pin.
versions() {
  "$python" - "$engine_constraints" "${engine_packages[@]}" deepspeed <<'PY'
import importlib.metadata
import re
import sys

from packaging.requirements import Requirement


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


pins = {}
with open(sys.argv[1], encoding="utf-8") as lines:
    for line in lines:
        if line.strip() and not line.startswith("#"):
            pin = Requirement(line.strip())
            if pin.marker is None or pin.marker.evaluate():
                pins[plain(pin.name)] = str(pin.specifier).removeprefix("==")
for package in sorted(importlib.metadata.distributions(), key=lambda one: plain(one.name)):
    name, pin = plain(package.name), pins.get(plain(package.name), "none")
    if name in sys.argv[2:] or name != "pip" and package.version.split("+")[0] != pin:
        print(name, package.version, pin)
PY
}

check_packages() {
  local name version pin outcome
  if ! versions >"$scratch/versions"; then
    fail packages "" "their versions can not be read"
    return
  fi
  while read -r name version pin; do
    outcome="pinned: $pin"
    if [[ " ${engine_packages[*]} deepspeed " == *" $name "* ]]; then
      if ! "$python" -c "import $name" >"$scratch/import-$name.log" 2>&1; then
        fail "$name" "$version" "import; $outcome"
        continue
      fi
      outcome="imports; $outcome"
    fi
    row "$name" "$version" "$outcome"
  done <"$scratch/versions"
}

check_operators() {
  local name
  for name in "${engine_operators[@]}"; do
    if operator_is_built "$python" "$name"; then
      row "operator $name" "" "built"
    else
      fail "operator $name" "" "$environment/operators.log"
    fi
  done
}

# tune EXAMPLE RANKS FOLDER: a job in a copy of the example, which is in FOLDER already.
tune() {
  local what="$1, ranks: $2" folder=$3 bad code=0
  local start=$SECONDS
  (
    cd "$folder"
    VIRTUAL_ENV=$environment OMP_NUM_THREADS=1 timeout "$job_limit_s" mpirun -np "$2" \
      "$program" --num-trials "$trials" space.json
  ) >"$folder/job.log" 2>&1 </dev/null || code=$?
  if [[ $code -ne 0 ]]; then
    fail "$what" "" "exit code $code; $folder/job.log"
    return
  fi
  bad=$(grep -cE '^[^,]*,(failed|timed_out|out_of_memory),' "$folder/autotuning_results/results.csv") || true
  if [[ $bad -ne 0 ]]; then
    fail "$what" "" "$bad experiments; $folder/autotuning_results/results.csv"
    return
  fi
  row "$what" "" "$(grep -m 1 '^\(Fastest\|Best\): ' "$folder/job.log"), $((SECONDS - start)) s"
}

# launch EXAMPLE FOLDER: the answer by its own launcher, until enough steps are seen.
launch() {
  local what="$1, launch" folder=$2 process end=$((SECONDS + launch_limit_s)) steps=0 ended=no
  local monitor='"csv_monitor": {"enabled": true, "output_path": "steps", "job_name": "launch"}'
  # DeepSpeed writes a line for each step, below a headline.
  sed -i "0,/{/s//{ $monitor,/" "$folder/autotuning_results/ds_config_optimal.json"
  (
    cd "$folder"
    export VIRTUAL_ENV=$environment PATH=$environment/bin:$PATH OMP_NUM_THREADS=1
    exec setsid bash autotuning_results/cmd_optimal.txt
  ) >"$folder/launch.log" 2>&1 </dev/null &
  process=$!
  while ((steps < steps_wanted && SECONDS < end)) && [[ $ended == no ]]; do
    sleep 1
    kill -0 "$process" 2>/dev/null || ended=yes
    steps=$(grep -c '^[0-9]' "$folder/steps/launch/Train_Samples_lr.csv" 2>/dev/null) || true
  done
  # setsid made it the leader of a group; the launcher ends its ranks, which have groups of their own.
  kill -TERM -- "-$process" 2>/dev/null || true
  wait "$process" || true
  if ((steps >= steps_wanted)); then
    row "$what" "" "$steps steps"
  else
    fail "$what" "" "$steps of $steps_wanted steps; $folder/launch.log"
  fi
}

check_examples() {
  local example ranks folder
  for ranks in 1 2; do
    for example in "$examples"/*/; do
      example=$(basename -- "$example")
      folder=$scratch/$example-$ranks
      rm -rf -- "$folder"
      cp -r "$examples/$example" "$folder"
      tune "$example" "$ranks" "$folder"
      # A function has no launch.
      if [[ $ranks -eq 2 && -e $folder/autotuning_results/cmd_optimal.txt ]] &&
        grep -q '"training_command"' "$folder/space.json"; then
        launch "$example" "$folder"
      fi
    done
  done
  # The examples do without DeepSpeed's operators.
  folder=$scratch/operators-2
  rm -rf -- "$folder"
  cp -r "$examples/language-model" "$folder"
  sed -i 's/, "torch_adam": true//' "$folder/space.json"
  tune "language-model with operators" 2 "$folder"
}

trials=${TRIALS:-4}
program=${PROGRAM:-$checkout/build/release/dstune-mpi}
[[ -n ${PROGRAM:-} ]] || build_release dstune-mpi
if ! make_environment "$environment" >&2; then
  fail environment "" "could not be made"
  finish "${1:-}"
fi
check_packages
check_operators
check_examples
finish "${1:-}"
