#!/bin/bash
# Tunes a DeepSpeed configuration on the nodes of this job.
# "dstune-mpi batch flux" prints this script; change what does not suit you. Results go to the
# folder that it is submitted from:
#   flux batch scripts/flux/tune.flux [space.json] [options of dstune-mpi]
# The answer is ds_config_optimal.json in the results folder. A job that ran out of time ends with
# 75, has written its best so far, and continues where it stopped when the same command is submitted
# again.
# flux: --job-name=dstune-tune
# flux: --nodes=2
# flux: --nslots=16
# flux: --cores-per-slot=4
# On GPU nodes add  --gpus-per-slot=1  to a line like these.
# flux: --time-limit=3600s
# Measurements do not like neighbours: add  --exclusive  likewise.
# flux: --output=dstune-tune-{{id}}.log

# shellcheck disable=SC2016,SC2034,SC2317  # LAUNCH is evaluated later, and traps call functions
# Load what your site calls its compiler and MPI, the same ones dstune-mpi was built with:
# module load gcc openmpi
# Activate the Python environment of your training, if it is DeepSpeed's engine that runs:
# source venv/bin/activate

set -uo pipefail

# The settings. Each of them may come from the environment, too.
DSTUNE_MPI=${DSTUNE_MPI:-build/release/dstune-mpi}
SPACE=${SPACE:-scripts/spaces/quickstart.json}
RESULTS_DIR=${RESULTS_DIR:-autotuning_results}
# More options of dstune-mpi, written as in a shell: OPTIONS="--metric latency"
OPTIONS=${OPTIONS:-}
# "yes": a job that ran out of time is queued again, at most so often, and only if an experiment
# ended in it.
REQUEUE=${REQUEUE:-no}
MAX_RESTARTS=${MAX_RESTARTS:-10}
# The batch system tells how long this job may run. TIME_LIMIT=30m counts in its place.
TIME_LIMIT=${TIME_LIMIT:-}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
# The time that this script asks for, where the batch system does not tell how much is left.
asked_s=3600

# The words behind the script's name, where the batch system hands them on: a space, and options.
if [[ $# -gt 0 && $1 != -* ]]; then
  SPACE=$1
  shift
fi
arguments=(--results-dir "$RESULTS_DIR")
# $1: the name of a setting that is written as in a shell.
refuse() {
  echo "$1 can not be read, look at its quotes: ${!1}" >&2
  exit 2
}
eval "arguments+=($OPTIONS)" || refuse OPTIONS
arguments+=("$@")

# How ranks are started, written as in a shell. Open MPI 5 wants -o pmi=pmix behind "flux run"; it
# is a plug-in of Flux.
nodes=$(flux getattr size 2>/dev/null) || nodes=2
# shellcheck disable=SC2034  # LAUNCH has it
ranks=$((nodes * 8))
LAUNCH=${LAUNCH:-'flux run -N $nodes -n $ranks -c 4'}

restarts=${RESTARTS:-0}

# The seconds that are left, or "unlimited", which Flux tells as the largest number of 32 bits;
# nothing where Flux does not tell.
seconds_left() {
  local left
  left=$(flux job timeleft 2>/dev/null)
  left=${left%%.*}
  [[ $left =~ ^[0-9]+$ ]] || return
  if ((left >= 4294967295)); then echo unlimited; else echo "$left"; fi
}

# A new job with all options, variables and the script of this one, which its jobspec holds.
queue_again() {
  local add_restart='
import json, sys
jobspec = json.load(sys.stdin)
jobspec["attributes"]["system"].setdefault("environment", {})["RESTARTS"] = sys.argv[1]
json.dump(jobspec, sys.stdout)'
  flux --parent job info --original "$(flux getattr jobid)" jobspec |
    flux python -c "$add_restart" $((restarts + 1)) |
    flux --parent job submit -
}

# "1-02:03:04", "2:03:04", "03:04", "90", "10m", "1h": in seconds. Fails for anything else.
in_seconds() {
  local text=$1 days=0 total=0 part unit=1
  if [[ $text =~ ^([0-9]+)([smhd])$ ]]; then
    case ${BASH_REMATCH[2]} in m) unit=60 ;; h) unit=3600 ;; d) unit=86400 ;; esac
    echo $((10#${BASH_REMATCH[1]} * unit))
    return
  fi
  [[ $text =~ ^([0-9]+-)?[0-9]+(:[0-9]+)*$ ]] || return 1
  if [[ $text == *-* ]]; then days=${text%%-*}; fi
  text=${text#*-}
  for part in ${text//:/ }; do total=$((total * 60 + 10#$part)); done
  echo $((10#$days * 86400 + total))
}

# The time limit of dstune-mpi, in seconds, and at most $1; nothing where there is none.
time_limit() {
  local most=$1 most_s left
  left=$(seconds_left)
  [[ -n $left ]] || left=$((asked_s - SECONDS))
  if [[ -n $most ]]; then
    most_s=$(in_seconds "$most") || { echo "$most"; return; }
    if [[ $left == unlimited || $most_s -lt $left ]]; then left=$most_s; fi
  fi
  [[ $left == unlimited ]] || echo $((left > 0 ? left : 0))
}

# dstune-mpi writes its exit code last of all. That file decides, not the launcher's code, which
# says nothing with "mpirun --enable-recovery". No new file means that it was cut off, or that the
# folder is somebody else's. The file of an earlier job is left alone.
status_file=$RESULTS_DIR/exit_status.json
state_of_status() { stat -c '%i %y %s' "$status_file" 2>/dev/null; }
has_ended() { [[ -e $status_file && $(state_of_status) != "$earlier_status" ]]; }
exit_code() {
  if has_ended; then
    sed -nE 's/.*"exit_code"[[:space:]]*:[[:space:]]*([0-9]+).*/\1/p' "$status_file" | head -n 1
  elif [[ $1 =~ ^[23467]$ ]]; then
    echo "$1"
  fi
}

# The number of experiments that have ended in this job and in earlier ones.
ended_experiments() {
  grep -cE '"kind":"(finished|repeated)"' "$RESULTS_DIR/journal.jsonl" 2>/dev/null
}

# Early warnings are passed on as SIGUSR1: launchers forward that to the ranks, while a SIGTERM
# would make mpirun kill them at once. dstune-mpi then writes its best so far and ends with 75.
pass_on() {
  echo "passing the signal on to dstune-mpi"
  flux job kill --signal=SIGUSR1 "$(flux job last)" 2>/dev/null || kill -USR1 "$pid"
}

# Starts dstune-mpi and waits for its end.
run_dstune() {
  local pid grace_s=60 launch=()
  earlier_status=$(state_of_status)
  ended_before=$(ended_experiments)
  eval "launch=($LAUNCH)" || refuse LAUNCH
  "${launch[@]}" "$DSTUNE_MPI" "${arguments[@]}" "$SPACE" &
  pid=$!
  trap pass_on USR1
  # A job that somebody cancels is not queued again.
  trap 'cancelled=yes; pass_on' TERM INT HUP
  # With --enable-recovery mpirun may stay although all ranks have left: it gets a minute for that.
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1 &
    wait $!
    if has_ended && ((grace_s-- <= 0)); then
      echo "dstune-mpi has ended and its launcher has not: ending that"
      kill -TERM "$pid"
      sleep 5
      kill -KILL "$pid" 2>/dev/null
    fi
  done
  wait "$pid"
  code=$(exit_code $?)
  code=${code:-1}
  trap - USR1 TERM INT HUP
  echo "dstune-mpi ended with $code"
}

# Only a job that ran out of time (75) is queued again. All other codes would come again, and so
# would a job in which no experiment ended.
may_queue_again() {
  [[ $code -eq 75 && $REQUEUE == yes && $cancelled == no ]] || return 1
  has_ended || return 1
  if [[ $restarts -ge $MAX_RESTARTS ]]; then
    echo "not queued again: this was restart $restarts of at most $MAX_RESTARTS"
    return 1
  fi
  if [[ $(ended_experiments) -le $ended_before ]]; then
    echo "not queued again: no experiment ended in this job; give it more time"
    return 1
  fi
}

# A job that was queued again goes on. These options are for the first one alone.
if [[ $restarts -gt 0 ]]; then
  for place in "${!arguments[@]}"; do
    case ${arguments[$place]} in --overwrite | --retry-failed) unset "arguments[$place]" ;; esac
  done
fi
if [[ " ${arguments[*]} " != *" --time-limit"[\ =]* ]]; then
  limit=${TIME_LIMIT:-$(time_limit "")}
  [[ -z $limit ]] || arguments+=(--time-limit "$limit")
fi
cancelled=no
run_dstune
if may_queue_again; then
  echo "queueing again: restart $((restarts + 1)) of at most $MAX_RESTARTS"
  queue_again || echo "that failed: submit the same command again"
fi
exit "$code"
