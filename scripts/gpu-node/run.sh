# The verb `run` of gpu-node.sh, which sources this.
# shellcheck shell=bash disable=SC2154  # folder, checkout, say, set_mpi_environment: the caller's

root=$folder.unpacked
logs=${LOGS:-$folder.logs}
build=$checkout/build/cuda
began_s=$SECONDS
failures=0

# --- Parts and the table --------------------------------------------------------------------------

row() { printf '%-44s  %-40s  %7s\n' "$1" "$2" "$3" >>"$logs/table.txt"; }

# What a part says of itself: its last line that begins with "result: ", or what fits none of them.
said() { sed -n 's/^result: //p' "$1" | tail -n 1; }

# within LIMIT_S COMMAND...: 124 where it does not end. Functions of this script have no `timeout`.
within() {
  local limit_s=$1 child code=0
  shift
  set -m # a process group of its own
  "$@" &
  child=$!
  set +m
  local end_s=$((SECONDS + limit_s))
  while kill -0 "$child" 2>/dev/null && ((SECONDS < end_s)); do sleep 0.2; done
  if kill -0 "$child" 2>/dev/null; then
    kill -TERM -- "-$child"
    for _ in {1..50}; do
      kill -0 "$child" 2>/dev/null || break
      sleep 0.2
    done
    kill -KILL -- "-$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
    return 124
  fi
  wait "$child" || code=$?
  return "$code"
}

# part NAME LIMIT_S COMMAND...: runs it, with its output in the log, and adds its row to the table.
part() {
  local name=$1 limit_s=$2 code=0 result output=$logs/.part
  shift 2
  if [[ -n ${TOTAL_S:-} ]]; then
    local left_s=$((TOTAL_S - (SECONDS - began_s)))
    ((limit_s <= left_s)) || limit_s=$left_s
    if ((limit_s < 5)); then
      row "$name" "not begun: no time is left" ""
      return 1
    fi
  fi
  say "--- $name"
  local start_s=$SECONDS
  within "$limit_s" "$@" >"$output" 2>&1 </dev/null || code=$?
  result=$(said "$output")
  case $code in
    0)
      if grep -q '\*\*\*Skipped' "$output"; then result="skipped"; else result=${result:-passed}; fi
      ;;
    77) result="skipped${result:+: $result}" ;;
    124)
      result="no end within $limit_s s"
      failures=$((failures + 1))
      ;;
    *)
      result="FAILED ($code)${result:+: $result}"
      failures=$((failures + 1))
      ;;
  esac
  {
    printf '=== %s: %s\n=== %s\n' "$name" "$result" "$*"
    cat "$output"
  } >>"$logs/log.txt"
  [[ $code == 0 || $code == 77 ]] || tail -n 15 "$output" >&2
  say "    $result, $((SECONDS - start_s)) s"
  row "$name" "$result" "$((SECONDS - start_s)) s"
  [[ $code == 0 ]]
}

# --- The node -------------------------------------------------------------------------------------

unpack() {
  local stamp
  stamp=$(cksum <"$folder/packages.tar.gz")
  if [[ $(cat "$root/stamp" 2>/dev/null) != "$stamp" ]]; then
    rm -rf -- "$root"
    mkdir -p "$root"
    tar -C "$root" -xzf "$folder/packages.tar.gz"
    echo "$stamp" >"$root/stamp"
  fi
}

set_environment() {
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  triplet=$(basename "$(dirname "$(find "$root/usr/lib" -maxdepth 2 -name 'libfmt.so*' -print -quit)")")
  node_libraries=${LD_LIBRARY_PATH:-}
  export PATH=$root/usr/bin:$PATH
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$root/usr/lib/$triplet
  # Where Open MPI and PMIx look for everything of theirs, in front of the folders they know.
  export OPAL_DESTDIR=$root PMIX_DESTDIR=$root PRTE_DESTDIR=$root
  # Open MPI looks for ssh even where all ranks are here.
  export OMPI_MCA_plm=isolated
  set_mpi_environment
}

# starts_ranks: whether mpirun does.
starts_ranks() { within 30 mpirun -np 2 true </dev/null >>"$logs/log.txt" 2>&1; }

# Containers with a kernel of their own (gVisor) may lack what Open MPI asks: the processors in /sys,
# which hwloc can do without, and a network interface of some sort, without which mpirun does not
# start at all. One rank needs no mpirun, so programs of more are skipped then.
find_a_way_to_start_ranks() {
  local alone=$root/alone
  rm -rf -- "$alone"
  echo "=== mpirun -np 2 true" >>"$logs/log.txt"
  starts_ranks && { row "mpirun" "starts ranks" "" && return; }
  export HWLOC_COMPONENTS=no_os
  starts_ranks && { row "mpirun" "starts ranks, with HWLOC_COMPONENTS=$HWLOC_COMPONENTS" "" && return; }
  mkdir -p "$alone"
  cat >"$alone/mpirun" <<'END'
#!/usr/bin/env bash
if [[ ${1:-} =~ ^-np?$ && ${2:-} == 1 ]]; then
  shift 2
  OMPI_MCA_ess_singleton_isolated=1 exec "$@"
fi
echo "result: mpirun does not start here"
exit 77
END
  chmod +x "$alone/mpirun"
  PATH=$alone:$PATH
  row "mpirun" "does not start: one rank alone, without it" ""
}

# "90-real;100-real" of the GPUs here; empty without one.
architectures() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    sed -n 's/^\([0-9]*\)\.\([0-9]*\)$/\1\2-real/p' | sort -u | paste -sd ';' || true
}

# with_gpu COMMAND...: for what would not say itself that there is none.
with_gpu() {
  if [[ -z $(architectures) ]]; then
    echo "result: no GPU"
    return 77
  fi
  "$@"
}

# if_there PROGRAM ARGUMENT...
if_there() {
  if ! command -v "$1" >/dev/null; then
    echo "result: no ${1##*/}"
    return 77
  fi
  "$@"
}

describe_node() {
  nvidia-smi || true
  for command in "nvcc --version" "g++ --version" "cmake --version" "mpirun --version"; do
    $command | tail -n 3 || true
  done
  python3 -c 'import torch; print("PyTorch", torch.__version__, torch.cuda.is_available())' || true
  nproc
  local gpu
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | paste -sd ',' || true)
  echo "result: ${gpu:-no GPU}"
}

# --- Building -------------------------------------------------------------------------------------

configure() {
  local generator=() native
  command -v ninja >/dev/null || generator=(-G "Unix Makefiles")
  native=$(architectures)
  local flags=("${generator[@]}" "-DCMAKE_PREFIX_PATH=$root/usr" -DMPI_SKIP_COMPILER_WRAPPER=ON
    "-DMPI_C_HEADER_DIR=$root/usr/lib/$triplet/openmpi/include" -DMPI_C_LIB_NAMES=mpi
    "-DMPI_mpi_LIBRARY=$root/usr/lib/$triplet/openmpi/lib/libmpi.so"
    "-DMPIEXEC_EXECUTABLE=$(command -v mpirun)" ${native:+"-DCMAKE_CUDA_ARCHITECTURES=$native"})
  cd "$checkout" || return
  # What an earlier attempt found wrongly stays in the cache: once without it.
  cmake --preset cuda "${flags[@]}" || cmake --preset cuda --fresh "${flags[@]}"
}

build_targets() { cmake --build "$build" --parallel "$(build_jobs)" --target "$@"; }

# --- What is asked for ----------------------------------------------------------------------------

# The names of CTest's device tests.
device_tests() {
  ctest --test-dir "$build" -N -L '^device$' | sed -n 's/^ *Test *#[0-9]*: //p'
}

# Code 6 says that there is no device.
run_job() {
  local results=$1 code=0
  shift
  rm -rf "$results"
  mkdir -p "$results"
  cd "$results" || return
  "$@" --no-progress || code=$?
  if ((code == 6)); then
    echo "result: no usable device"
    return 77
  fi
  sed -n 's/^Best: /result: /p' autotuning_results/summary.txt 2>/dev/null || true
  return "$code"
}

checks() {
  local test
  part "building the tests" 590 build_targets device_tests || true
  part "building dstune-mpi" 590 build_targets dstune-mpi || true
  part "dstune-mpi --version" 60 "$build/dstune-mpi" --version || true
  while read -r test; do
    part "$test" 590 ctest --test-dir "$build" -R "^${test//./\\.}\$" --output-on-failure --timeout 580 || true
  done < <(device_tests)
  part "job: quickstart, 4 ranks on these GPUs" 240 run_job "$build/jobs/quickstart" \
    mpirun -np 4 "$build/dstune-mpi" --backend cuda "$checkout/scripts/spaces/quickstart.json" || true
  part "job: GPT-2 355M" 590 run_job "$build/jobs/gpt2-medium" \
    mpirun -np 1 "$build/dstune-mpi" --backend cuda --time-limit 9m "$checkout/scripts/spaces/gpu.json" || true
}

# Of the cards known here what bf16 products reach without sparsity, by their makers' datasheets, in
# TFLOP/s; PEAK_TFLOPS names another.
peak_tflops() {
  [[ -z ${PEAK_TFLOPS:-} ]] || { echo "$PEAK_TFLOPS" && return; }
  case $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) in
    *H200 | *H100*HBM3) echo 989 ;;
    *A100*) echo 312 ;;
    *) echo 0 ;;
  esac
}

# Of memory, TB/s (PEAK_TBS says another).
peak_tbs() {
  [[ -z ${PEAK_TBS:-} ]] || { echo "$PEAK_TBS" && return; }
  case $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) in
    *H200) echo 4.8 ;;
    *H100*HBM3) echo 3.35 ;;
    *A100*80GB*) echo 2.04 ;;
    *) echo 0 ;;
  esac
}

# PyTorch finds its own libraries where nothing of ours is in the way.
with_pytorch() {
  if ! python3 -c 'import torch' 2>/dev/null; then
    echo "result: no PyTorch in python3"
    return 77
  fi
  LD_LIBRARY_PATH=$node_libraries python3 "$checkout/scripts/compare_pytorch.py" "$@"
}

# One line a shape: what both programs are given | what ours is given besides.
shapes=(
  '--model gpt2 --micro-batch 32 --tokens 1024|'
  '--model gpt2-xl --micro-batch 16 --tokens 1024|'
  '--model tinyllama-1.1b --micro-batch 8 --tokens 2048|'
  '--model llama-7b --micro-batch 2 --tokens 2048|'
)

bench() {
  local shape both ours name peak
  part "building the benchmarks" 590 build_targets gpu_step_bench kernels_bench || true
  peak=$(peak_tflops)
  for shape in "${shapes[@]}"; do
    IFS='|' read -r both ours <<<"$shape"
    read -ra both <<<"$both --peak-tflops $peak"
    read -ra ours <<<"$ours --peak-tbs $(peak_tbs)"
    name=${both[1]}
    part "step of $name" 300 mpirun -np 1 "$build/bench/gpu_step_bench" "${both[@]}" "${ours[@]}" || true
    part "step of $name in PyTorch" 590 with_pytorch "${both[@]}" --attention flash cudnn || true
  done
  part "kernels in bf16" 590 with_gpu "$build/bench/kernels_bench" '--benchmark_filter=^cuda/.*bf16' \
    --benchmark_min_time=0.1 || true
}

sanitize() {
  local tool sanitizer
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  part "building the kernels' tests" 590 build_targets test_device_kernels || true
  for tool in memcheck racecheck initcheck; do
    part "$tool on the operations" 590 with_gpu if_there "$sanitizer" --tool "$tool" --error-exitcode 86 \
      "$build/tests/test_device_kernels" "--gtest_filter=${SANITIZE_TESTS:-Tables/*}" || true
  done
}

# --- All of it ------------------------------------------------------------------------------------

run() {
  local words=("$@") word
  [[ -e $folder/packages.tar.gz ]] || { say "no $folder/packages.tar.gz: pack it where there is a network"; exit 2; }
  ((${#words[@]} > 0)) || words=(all)
  [[ " ${words[*]} " != *" all "* ]] || words=(checks bench sanitize)
  mkdir -p "$logs" "$build"
  : >"$logs/table.txt"
  : >"$logs/log.txt"
  row "what" "result" "time"
  unpack
  set_environment
  find_a_way_to_start_ranks
  part "this node" 60 describe_node || true
  if part "configuring" 300 configure; then
    for word in "${words[@]}"; do "$word"; done
  fi
  rm -f "$logs/.part"
  cat "$logs/table.txt"
  say "$logs/log.txt has what each part printed"
  ((failures == 0))
}

run "$@"
