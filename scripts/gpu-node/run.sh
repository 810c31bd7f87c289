# The verb `run` of gpu-node.sh, which sources this. `rehearse` asks it for the parts and their limits.
# shellcheck shell=bash disable=SC2154,SC2034  # folder, checkout, say, set_mpi_environment: the caller's; groups by name
#
# Variables: OUT, TOTAL_S, BACKEND (cuda; cpu tries the script), JOBS (folder of the spaces),
# ROOT (where it unpacks; default /tmp/dstune-gpu-node).

root=${ROOT:-/tmp/dstune-gpu-node}
out=${OUT:-$folder/out}
total_s=${TOTAL_S:-570}
backend=${BACKEND:-cuda}
jobs=${JOBS:-$checkout/scripts/gpu-node/spaces}
began_s=$SECONDS
failures=0

# A group is a call. Its limits leave half a minute of TOTAL_S for unpacking. The parts that decide most
# come first: the node may be gone before the last.
first=(node version check step124 step124_without_graphs losses job engine1 engine2 correlation)
second=(kernels attention nccl1 trainings1 verify backends)
beside=(step_xl pytorch_xl step_1b pytorch124 staged2 kernels_bench)
third=(nccl2 trainings2 memcheck racecheck)
judge=(judge-job judge-engine1 judge-engine2 judge-correlation)
public=(public-job public-engine1 public-engine2 public-correlation)
groups=(first second beside third judge public)
# Seconds, above what is expected, and at most 170.
declare -A limit_of=(
  [node]=25 [version]=5 [check]=40 [step124]=50 [step124_without_graphs]=35 [losses]=50 [job]=60 [engine1]=130 [engine2]=130 [correlation]=15
  [kernels]=90 [attention]=90 [nccl1]=30 [trainings1]=150 [verify]=110 [backends]=70
  [step_xl]=70 [pytorch_xl]=150 [step_1b]=60 [pytorch124]=120 [staged2]=40 [kernels_bench]=60
  [nccl2]=60 [trainings2]=150 [memcheck]=150 [racecheck]=150 [initcheck]=150
  [judge-job]=90 [judge-engine1]=170 [judge-engine2]=170 [judge-correlation]=20
  [public-job]=90 [public-engine1]=170 [public-engine2]=170 [public-correlation]=20
  [right]=150 [experiments]=60 [experiments_without_graphs]=60)

# --- The node -------------------------------------------------------------------------------------

# A bare image may have no xz; Python has it. Before 3.12 it may not know filters.
unpack() {
  python3 -c 'import sys, tarfile
trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
with tarfile.open(sys.argv[1]) as file:
    file.extractall(sys.argv[2], **trusted)' "$@"
}

prepare() {
  local built
  if [[ ! -e $root/ready ]]; then
    mkdir -p "$root/results"
    unpack "$folder/carry.tar.xz" "$root"
    # Paths that are compiled in (golden files, helpers) are those of the machine that built.
    built=$(cat "$root/checkout")
    if [[ ! -e $built ]]; then mkdir -p "$(dirname "$built")" && ln -s "$checkout" "$built"; fi
    built=$(cat "$root/build")
    if [[ ! -e $built/tests ]]; then mkdir -p "$built" && ln -s "$root/bin" "$built/tests"; fi
    [[ -e /usr/bin/mpirun || ! -w /usr/bin ]] || ln -s "$root/usr/bin/mpirun" /usr/bin/mpirun
    if compgen -G "$root/wheels/*.whl" >/dev/null; then
      python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$root/python" "$root"/wheels/*.whl
    fi
    touch "$root/ready"
  fi
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  local triplet nvidia
  triplet=$(basename "$(dirname "$(find "$root/usr/lib" -maxdepth 2 -name 'libfmt.so*' -print -quit)")")
  nvidia=$(python3 -c 'import importlib.util as u; s = u.find_spec("nvidia"); print(*(s.submodule_search_locations if s else []))')
  node_libraries=${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH=$root/usr/lib/$triplet:$root/usr/lib/$triplet/openmpi/lib
  [[ -z $nvidia ]] || LD_LIBRARY_PATH+=:$nvidia/cudnn/lib:$nvidia/nccl/lib:$nvidia/cu13/lib
  LD_LIBRARY_PATH+=${node_libraries:+:$node_libraries}
  export PATH=$root/usr/bin:$root/bin:$PATH PYTHONUNBUFFERED=1
  # Where Open MPI and PMIx look for everything of theirs, in front of the folders they know.
  export OPAL_DESTDIR=$root PMIX_DESTDIR=$root PRTE_DESTDIR=$root
  # Open MPI looks for ssh even where all ranks are here.
  export OMPI_MCA_plm=isolated
  set_mpi_environment
  export TORCH_EXTENSIONS_DIR=$root/extensions
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
  memory_mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1 || true)
  memory_mib=${memory_mib:-0}
  # Peaks of bf16 products and of memory by the maker's datasheets, without sparsity.
  case $gpu in
    *H200*) peaks=(--peak-tflops 989 --peak-tbs 4.8) ;;
    *H100*) peaks=(--peak-tflops 989 --peak-tbs 3.35) ;;
    *A100*) peaks=(--peak-tflops 312 --peak-tbs 2.04) ;;
    *) peaks=(--peak-tflops 0 --peak-tbs 0) ;;
  esac
}

# Operators are carried, or built beside the parts that need no processor.
provide_operators() {
  [[ $backend != cpu ]] || return 0
  local name folder
  for name in FusedAdam:fused_adam CPUAdam:cpu_adam; do
    folder=$TORCH_EXTENSIONS_DIR/${name#*:}
    [[ ! -e $folder/${name#*:}.so ]] || continue
    mkdir -p "$folder"
    if [[ -e $root/${name#*:}.so ]] && { [[ ${name%:*} != CPUAdam ]] || has_instructions "$root/instructions"; }; then
      cp "$root/${name#*:}.so" "$folder/" # newer than its sources
      continue
    fi
    DS_ACCELERATOR=cuda PYTHONPATH=$root/python setsid nohup python3 -c \
      "from deepspeed.ops.op_builder import ${name%:*}Builder as b; b().load()" >"$root/${name#*:}.log" 2>&1 </dev/null &
  done
}

# Whether this processor has all that are listed.
has_instructions() { [[ -z $(LC_ALL=C comm -23 "$1" <(processor_instructions)) ]]; }

# --- Parts and the table --------------------------------------------------------------------------

# A part says of itself: its last line of a result, of a best member, or of tests.
said() { grep -hE '^(result: |Fastest: |Best: |\[  (PASSED|FAILED|SKIPPED)|[0-9]+ tests? )' "$1" | tail -n 1 | sed 's/^result: //' | cut -c1-150; }

# Everything comes back whatever happens later. Logs that grow meanwhile are no failure of the part.
save() {
  local logs=()
  mapfile -t logs < <(cd "$root" && find ./*.log results -type f ! -name journal.jsonl ! -path '*-experiments/*')
  tar -C "$root" -czf "$out/logs.tgz.new" -- "${logs[@]}" || say "not all logs could be packed"
  mv "$out/logs.tgz.new" "$out/logs.tgz"
}

say_left() { { (($# == 0)) || printf '%s\n' "$@"; } >"$out/left.txt.new" && mv "$out/left.txt.new" "$out/left.txt"; }

# The limit of a part, or what is left of the whole time where that is less.
limit_now() {
  local left_s=$((total_s - (SECONDS - began_s)))
  # No limit at all is what timeout takes 0 for.
  ((left_s > 0)) || left_s=1
  echo $((limit_of[$1] < left_s ? limit_of[$1] : left_s))
}

# measure NAME COMMAND...: adds a row.
measure() {
  local name=$1 limit_s code=0 text start_s=$SECONDS
  limit_s=$(limit_now "$name")
  shift
  say "--- $name"
  timeout -k 5 "$limit_s" "$@" >"$root/$name.log" 2>&1 </dev/null || code=$?
  text=$(said "$root/$name.log" || true)
  case $code in
    0) text=${text:-passed} ;;
    77) text="skipped: $text" ;;
    124 | 137) text="no end within $limit_s s${text:+: $text}" ;;
    *) text="FAILED ($code)${text:+: $text}" ;;
  esac
  if [[ $code != 0 && $code != 77 ]]; then
    failures=$((failures + 1))
    tail -n 12 "$root/$name.log" >&2
  fi
  printf '%-24s %4s of %3s s  %s\n' "$name" $((SECONDS - start_s)) "$limit_s" "$text" >>"$out/table.txt"
  [[ -n ${beside_others:-} ]] || save
}

# at_once PART...: parts that time nothing, beside each other.
at_once() {
  local part ids=()
  for part in "$@"; do
    (beside_others=yes && failures=0 && run_part "$part" && exit "$failures") &
    ids+=($!)
  done
  for part in "${ids[@]}"; do wait "$part" || failures=$((failures + 1)); done
  save
}

tune() { # tune NAME SPACE OPTION...: it ends by itself, with an answer, before its limit
  local name=$1 space=$2 limit_s
  limit_s=$(limit_now "$name")
  shift 2
  # One call runs at a time: a lock is that of a call which was killed.
  rm -f "$root/results/$name/lock"
  PYTHONPATH=$root/python measure "$name" mpirun -np 1 "$root/bin/dstune-mpi" --no-progress --backend "$backend" \
    --time-limit "$((limit_s > 20 ? limit_s - 10 : limit_s / 2))s" --results-dir "$root/results/$name" --exps-dir "$root/results/$name-experiments" "$@" "$jobs/$space"
}
step() { measure "$1" mpirun -np 1 "$root/bin/gpu_step_bench" "${@:2}" "${peaks[@]}"; }
with_pytorch() { # PyTorch finds its own libraries where nothing of ours is in the way
  measure "$1" env "LD_LIBRARY_PATH=$node_libraries" python3 "$checkout/scripts/tools/compare_pytorch.py" --attention flash "${@:2}" "${peaks[@]:0:2}"
}
sanitize() {
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  measure "$1" "$sanitizer" --tool "$1" --error-exitcode 86 "$root/bin/test_device_kernels" \
    "--gtest_filter=${SANITIZE_TESTS:-Tables/*Norm*:Tables/*CrossEntropy*:Tables/*Embedding*}" --gtest_brief=1
}
tests() { # tests NAME RANKS PROGRAM FILTER
  measure "$1" mpirun -np "$2" "$root/bin/$3" "--gtest_filter=$4"
}
fits() { ((memory_mib >= $1 * 1024)); }

describe() {
  nvidia-smi
  nvidia-smi -q -d CLOCK,ECC,PERFORMANCE | head -n 60
  nvcc --version | tail -n 2
  python3 -c 'import torch; print("PyTorch", torch.__version__, torch.cuda.get_device_name(), "NCCL", torch.cuda.nccl.version(), "cuDNN", torch.backends.cudnn.version())'
  uname -a
  nproc
  ulimit -l
  df -h /tmp /dev/shm
  echo "result: ${gpu:-no GPU}, $memory_mib MiB"
}
export -f describe
export gpu memory_mib 2>/dev/null || true

# A filter of GoogleTest for trainings that stand for the others.
short_trainings='*gpt2_bf16*:*llama_bf16*'

run_part() {
  local xl_micro=16
  fits 100 || xl_micro=8
  case $1 in
    node) measure node bash -c describe ;;
    version) measure version "$root/bin/dstune-mpi" --version ;;
    check) measure check mpirun -np 1 "$root/bin/dstune-mpi" check --backend "$backend" ;;
    step124) step step124 --model gpt2 --micro-batch 32 --tokens 1024 ;;
    step124_without_graphs) DSTUNE_CUDA_GRAPHS=0 step step124_without_graphs --model gpt2 --micro-batch 32 --tokens 1024 --trace-seconds 1 ;;
    losses) tests losses 1 test_parallel_train_on_gpus "$short_trainings" ;;
    job) tune job own.json ;;
    engine1 | engine2) tune "$1" engine.json ;;
    correlation) measure correlation python3 "$checkout/scripts/gpu-node/correlation.py" "$root/results" ;;
    judge-job | public-job) tune "$1" "${1%-*}-own.json" ;;
    judge-engine? | public-engine?) tune "$1" "${1%-*}-engine.json" ;;
    judge-correlation | public-correlation) measure "$1" python3 "$checkout/scripts/gpu-node/correlation.py" "$root/results" "${1%correlation}" ;;
    experiments) DSTUNE_EXPERIMENTS=300 tests experiments 1 test_parallel_experiments_on_gpus "*" ;;
    experiments_without_graphs) DSTUNE_CUDA_GRAPHS=0 DSTUNE_EXPERIMENTS=300 tests "$1" 1 test_parallel_experiments_on_gpus "*Transformer*" ;;
    right) at_once kernels attention nccl1 trainings1 ;;
    kernels) tests kernels 1 test_device_kernels 'Tables/*:-*Attention*' ;;
    attention) tests attention 1 test_device_kernels 'Tables/*Attention*' ;;
    nccl1) tests nccl1 1 test_parallel_collectives_on_gpus '*' ;;
    trainings1) tests trainings1 1 test_parallel_train_on_gpus '*' ;;
    verify) tune verify judge-own.json --verify ;;
    step_xl) step step_xl --model gpt2-xl --micro-batch $xl_micro --tokens 1024 ;;
    step_1b) step step_1b --model tinyllama-1.1b --micro-batch 8 --tokens 2048 ;;
    pytorch124) with_pytorch pytorch124 --model gpt2 --micro-batch 32 --tokens 1024 ;;
    pytorch_xl) with_pytorch pytorch_xl --model gpt2-xl --micro-batch $xl_micro --tokens 1024 ;;
    staged2) tests staged2 2 test_parallel_collectives_on_gpus '*' ;;
    # It starts mpirun itself.
    backends) DSTUNE_E2E_BINARY=$root/bin/dstune-mpi measure backends "$root/bin/test_e2e_backends" "--gtest_filter=$backend/*" ;;
    kernels_bench) measure kernels_bench "$root/bin/kernels_bench" '--benchmark_filter=^cuda/.*bf16' --benchmark_min_time=0.05 ;;
    nccl2) two_ranks nccl2 test_parallel_collectives_on_gpus '*' ;;
    trainings2) two_ranks trainings2 test_parallel_train_on_gpus "$short_trainings" ;;
    memcheck | racecheck | initcheck) sanitize "$1" ;;
  esac
}

# Two real NCCL ranks on one GPU, by the carried NCCL.
two_ranks() {
  if [[ ! -e $root/nccl/libnccl.so.2 ]]; then
    if [[ ! -e $folder/nccl.tar.xz ]]; then
      measure "$1" bash -c 'echo "result: nccl.tar.xz was not carried"; exit 77'
      return
    fi
    mkdir -p "$root/nccl"
    unpack "$folder/nccl.tar.xz" "$root/nccl"
  fi
  LD_LIBRARY_PATH=$root/nccl:$LD_LIBRARY_PATH NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=4 NCCL_DEBUG=WARN \
    tests "$1" 2 "$2" "$3"
}

# parts_of WORD...: the parts, a line each, of groups and parts.
parts_of() {
  local word
  for word in "$@"; do
    case $word in
      first | second | beside | third | judge | public)
        local -n group=$word
        printf '%s\n' "${group[@]}"
        ;;
      *)
        [[ -n ${limit_of[$word]:-} ]] || { say "no part is called $word"; return 2; }
        echo "$word"
        ;;
    esac
  done
}

run() {
  local words left
  words=$(parts_of "$@") || exit
  mapfile -t left <<<"$words"
  mkdir -p "$out"
  : >"$out/table.txt"
  say_left "${left[@]}"
  prepare
  provide_operators
  say "prepared in $((SECONDS - began_s)) s"
  while ((${#left[@]} > 0)) && (($(limit_now "${left[0]}") >= 5)); do
    # A fault around a part is no reason to leave the others.
    run_part "${left[0]}" || failures=$((failures + 1))
    left=("${left[@]:1}")
    say_left "${left[@]}"
  done
  cat "$out/table.txt"
  if ((${#left[@]} > 0)); then say "left, for want of time: ${left[*]}"; fi
  ((failures == 0))
}

[[ $verb != run ]] || run "$@"
