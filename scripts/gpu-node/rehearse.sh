# The verb `rehearse` of gpu-node.sh, which sources this.
# shellcheck shell=bash disable=SC2154,SC2034  # folder, checkout, say: the caller's; some are for what is sourced
#
# A node is bare and gone after a command, so each call here starts from nothing but a copy of the
# sources and of FOLDER: no MPI, no network but loopback, no GPU. Jobs train a tiny model on the
# processor. What `carry` made for GPUs has to start and to say that there is none; what needs PyTorch
# or compute-sanitizer is left out. Exit code: 0 where all held, 77 where this system
# has no namespaces, else 1.
#
# Variables: BUILD (for /, default build/release), DSTUNE_ENGINE_PYTHON (for /: a Python with PyTorch and
# DeepSpeed; without it DeepSpeed's parts are left out), UBUNTU_ARCHIVE.

root_folder=$(realpath -m -- "${1:-$folder/root}")
call_s=540      # of parts, in a command of 600 on a node
carried_mib=60  # goes to a node at most, with the sources
back_files=8    # come back at most, of
back_mib=16     # each
faults=0
PATH+=:/usr/sbin:/sbin # a user has no ip there
[[ $root_folder != / ]] || BUILD=${BUILD:-$checkout/build/release}
# shellcheck source=scripts/gpu-node/pack.sh
source "$checkout/scripts/gpu-node/pack.sh"
# shellcheck source=scripts/gpu-node/carry.sh
source "$checkout/scripts/gpu-node/carry.sh"
# shellcheck source=scripts/gpu-node/run.sh
source "$checkout/scripts/gpu-node/run.sh"
# shellcheck source=scripts/tools/roots.sh
source "$checkout/scripts/tools/roots.sh"
root=$root_folder

skip() { say "skipped: $1"; exit 77; }
wrong() { say "WRONG: $*"; faults=$((faults + 1)); }
holds() { "${@:2}" || wrong "$1"; } # holds WORDS COMMAND...

# --- The node -------------------------------------------------------------------------------------

# A namespace of this system. Root has all; another user is root of his own.
namespaces=(--mount --net --pid --fork --kill-child --mount-proc)
((EUID == 0)) || namespaces+=(--user --map-root-user)

# This system's libraries and MPI, packed as `pack` has them. What is packed is hidden, and what the
# programs ask for: else they would find what is not packed.
pack_this_system() {
  local mpi=(/usr/lib/*-linux-gnu/openmpi/lib/libmpi.so) library program
  local ours_here=(dstune-mpi libdstune-mpi.so libdstune-mpi-comm.so)
  [[ -e ${mpi[0]} ]] || skip "MPI is not Open MPI as Debian and Ubuntu have it"
  git -C "$checkout" rev-parse 2>/dev/null || skip "$checkout is no checkout of git"
  for program in ip readelf strip xz; do
    command -v "$program" >/dev/null || skip "there is no $program (packages iproute2, binutils, xz-utils)"
  done
  unshare "${namespaces[@]}" ip link set lo up 2>/dev/null || skip "namespaces can not be made here"
  kept=$work
  cd / || exit
  index_libraries
  keep_what_runs_need
  (cd "$kept" && find . ! -type d) >"$hidden"
  ldd "${ours_here[@]/#/$build/}" | sed -n 's|.*=> /\([^ ]*\) .*|\1|p' |
    while read -r library; do is_everywhere "${library##*/}" || echo "$library"; done >>"$hidden"
  XZ_LEVEL=1 # the time of a test
  pack_programs "${ours_here[@]}"
  cd "$checkout" || exit
}

# Ubuntu, with the Python that a node has.
make_bare_root() {
  local program
  ((EUID == 0)) || { say "A bare system is made and entered by root"; exit 1; }
  for program in debootstrap unshare chroot ip; do
    command -v "$program" >/dev/null || { say "rehearse needs $program"; exit 1; }
  done
  if [[ ! -e $root/made && ! -d $root/debootstrap && -n $(ls -A "$root" 2>/dev/null) ]]; then
    say "$root is something else, and would be deleted: name another ROOT_FOLDER"
    exit 1
  fi
  [[ -e $root/made ]] || make_root "${systems[-1]}" || exit
  [[ -e $root/has-python ]] || within "apt-get install -y -q --no-install-recommends python3 python3-pip" || exit
  touch "$root/has-python"
}

# in_node WORDS: a shell command there; what it starts ends with it.
in_node() {
  if [[ $root_folder != / ]]; then
    within "$1" --net
    return
  fi
  # shellcheck disable=SC2016  # for the shell inside
  unshare "${namespaces[@]}" bash -c '
    ip link set lo up
    for place in /usr/lib/*/openmpi /usr/lib/*/pmix2 /usr/share/{openmpi,pmix,prte} /etc/{openmpi,pmix,prte}; do
      [[ ! -d $place ]] || mount -t tmpfs tmpfs "$place"
    done
    while read -r file; do
      [[ ! -e /$file ]] || mount --bind /dev/null "/$file"
    done <"$0"
    exec env -i PATH="$1" HOME="$HOME" TMPDIR="$2" bash -c "$3"' "$hidden" "$node_path" "$temporary" "$1"
}

# call OUT PARTS [VARIABLE=VALUE...]: a command on the node.
call() {
  in_node "cd '$inside' && OUT='$inside/build/gpu-node/$1' ROOT='$unpacked' JOBS='$inside/build/gpu-node/jobs' BACKEND=cpu \
    env $( (($# < 3)) || printf '%q ' "${@:3}") bash scripts/gpu-node.sh run build/gpu-node $2"
}

# The spaces of a node with a model that a processor trains; their shape is the same.
write_tiny_spaces() {
  local space
  mkdir -p "$1"
  for space in "$checkout"/scripts/gpu-node/spaces/*; do
    sed -e 's/"sequence_length": [0-9]*/"sequence_length": 16/' -e 's/"trial_budget_s": [0-9]*/"trial_budget_s": 0.1/' \
      -e 's/\(micro_batch_size_per_gpu": \)\[[^]]*\]/\1[1, 2]/' -e 's/"stage": \[[^]]*\]/"stage": [0, 2]/' \
      -e 's/"lr": 1e-4/"lr": 1e-4, "torch_adam": true/' -e 's/"n_embd": [0-9]*/"n_embd": 64/' \
      -e 's/"n_layer": [0-9]*/"n_layer": 2/' -e 's/"n_head": [0-9]*/"n_head": 2/' \
      -e 's/"vocab_size": [0-9]*/"vocab_size": 512/' -e 's/_token_id": [0-9]*/_token_id": 1/g' "$space" >"$1/${space##*/}"
  done
}

# The node has a copy of the sources, and in it what is carried. Paths as the node has them are `inside`
# and `unpacked`; as this system does, `outside` and `disk`.
make_node() {
  local node=$folder/node archive
  inside=$node/dstune-mpi unpacked=$node/unpacked outside=$node/dstune-mpi disk=$node/unpacked
  if [[ $root_folder != / ]]; then
    inside=/home/tester/dstune-mpi unpacked=/tmp/dstune-gpu-node outside=$root/home/tester/dstune-mpi disk=$root/tmp/dstune-gpu-node
    rm -rf "$disk"
  fi
  rm -rf "$node"
  copy_checkout "$outside"
  mkdir -p "$outside/build/gpu-node"
  for archive in carry nccl; do
    [[ ! -e $folder/$archive.tar.xz ]] || cp "$folder/$archive.tar.xz" "$outside/build/gpu-node/"
  done
  write_tiny_spaces "$outside/build/gpu-node/jobs"
}

# --- What has to hold -----------------------------------------------------------------------------

# is_fine TABLE PART: it has a row that says so, and within its limit.
is_fine() {
  local took limit unit text
  read -r _ took _ limit unit text < <(grep "^$2 " "$1") || return 1
  ((took <= limit)) || return 1
  case $2 in
    job | engine*) [[ $text == Best:* ]] ;;
    check) [[ $text == passed ]] ;;
    correlation) [[ $have_engine == no || $text =~ ^'DeepSpeed again '-?[0-9.]+', our step '-?[0-9.]+ ]] ;;
    node | version) [[ $text != FAILED* && $text != 'no end'* && $text != skipped* ]] ;;
    *) [[ $text == passed || $text == skipped:* ]] ;; # of a GPU's parts
  esac
}

has_log() { tar -tzf "$1/logs.tgz" 2>/dev/null | grep -x "./$2.log" >/dev/null; }
comes_back() { (($(find "$1" -type f | wc -l) <= back_files)) && [[ -z $(find "$1" -type f -size "+${back_mib}M") ]]; }
is_left() { [[ $(tr '\n' ' ' <"$1/left.txt") == "$2" ]]; } # is_left OUT 'PART PART '

# finished OUT PART...: what a call to the end leaves.
finished() {
  local part name=${1##*/}
  for part in "${@:2}"; do
    holds "$name: $part runs within its limit" is_fine "$1/table.txt" "$part"
    holds "$name: the log of $part comes back" has_log "$1" "$part"
  done
  holds "$name: nothing is left" is_left "$1" ''
  holds "$name: at most $back_files files of $back_mib MiB come back" comes_back "$1"
}

# The node goes while a job of the third part runs, for which less than its limit was left.
kill_in_the_middle() {
  local out=$results/killed pid part tenths seconds
  set -m # a group of its own
  call killed "node version ${jobs_parts[*]}" TOTAL_S=40 >"$folder/killed.log" 2>&1 &
  pid=$!
  set +m
  for ((tenths = 0; tenths < 1200; ++tenths)); do
    ! grep -qs 'time limit' "$disk/job.log" || break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL -- "-$pid" 2>/dev/null || wrong "the call ended before it was killed"
  wait "$pid" 2>/dev/null || true
  for part in node version; do
    holds "killed: the row of $part is there" is_fine "$out/table.txt" "$part"
    holds "killed: the log of $part is there" has_log "$out" "$part"
  done
  holds "killed: left.txt names the rest" is_left "$out" "${jobs_parts[*]} "
  # It ends 10 s before its part's limit, which the call has cut.
  seconds=$(sed -n 's/.*time limit \([0-9]*\)[.0-9]* s.*/\1/p' "$disk/job.log" | head -n 1)
  holds "killed: the job had the time that was left" [ "${seconds:-99}" -le 30 ]
}

# The part `job` once more, on the GPU that is pretended to be there, where that was built.
try_emulated_gpu() {
  local programs=$build/tests/emulated_gpu libraries
  if [[ ! -e $programs/dstune-mpi ]]; then
    say "an emulated GPU is left out: $build has no target dstune-mpi-emulated"
    return
  fi
  mapfile -t libraries < <(ldd "$programs/dstune-mpi" | sed -n "s|.*=> \($build/[^ ]*\) .*|\1|p")
  mkdir -p "$results/gpus" "$disk/extensions/fused_adam"
  cp -L "${libraries[@]}" "$programs"/lib*.so.* "$results/gpus/"
  cp "$programs/dstune-mpi" "$disk/bin/"
  touch "$disk/extensions/fused_adam/fused_adam.so" # which only a GPU could use
  rm -rf "$disk"/results/job*
  call emulated job BACKEND=cuda DSTUNE_EMULATED_GPUS=1 DSTUNE_EMULATED_FOLDER="$unpacked/gpus" \
    LD_LIBRARY_PATH="$inside/build/gpu-node/gpus" >"$folder/emulated.log" 2>&1 || wrong "the call on an emulated GPU fails: $(tail -n 20 "$folder/emulated.log")"
  finished "$results/emulated" job
  sed 's/^job \{16\}/job (emulated GPU) /' "$results/emulated/table.txt" >>"$table"
}

sizes() {
  local archive kib
  for archive in carry nccl; do
    archive=$folder/$archive.tar.xz
    [[ -e $archive ]] || continue
    kib=$(($(stat -c %s "$archive") / 1024 + $(sources_kib)))
    echo "${archive##*/}: $(($(stat -c %s "$archive") / 1024)) KiB, with the sources $((kib / 1024)) MiB of $carried_mib"
    ((kib <= carried_mib * 1024)) || wrong "${archive##*/} and the sources are above $carried_mib MiB"
  done
}

limits() {
  local group part parts sum
  for group in "${groups[@]}"; do
    sum=0
    mapfile -t parts < <(parts_of "$group")
    for part in "${parts[@]}"; do sum=$((sum + limit_of["$part"])); done
    echo "limits of '$group': $sum s of $call_s"
    ((sum <= call_s)) || wrong "the parts of '$group' may take longer than a call"
  done
}

rehearse() {
  work=$(mktemp -d) temporary=$(mktemp -d) # MPI has its own of each user in /tmp
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$work' '$temporary'" EXIT
  mkdir -p "$folder"
  hidden=$folder/hidden.txt table=$folder/table.txt node_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin have_engine=no
  if [[ $root_folder == / ]]; then pack_this_system; else make_bare_root; fi
  [[ -e $folder/carry.tar.xz ]] || { say "$folder has no carry.tar.xz: scripts/gpu-node.sh carry makes it"; exit 1; }
  jobs_parts=(job correlation) gpu_parts=()
  # They start, and say that there is no GPU.
  [[ $root_folder == / ]] || gpu_parts=(step124 step124_without_graphs losses kernels attention nccl1 trainings1 step_xl
    step_1b staged2 backends kernels_bench nccl2 trainings2)
  if [[ $root_folder == / && -n ${DSTUNE_ENGINE_PYTHON:-} ]]; then
    node_path=$(dirname "$DSTUNE_ENGINE_PYTHON"):$node_path
    have_engine=yes jobs_parts=(job engine1 engine2 correlation)
  else
    say "DeepSpeed's parts are left out: $([[ $root_folder == / ]] && echo "DSTUNE_ENGINE_PYTHON is not set" || echo "the bare system has no PyTorch")"
  fi
  make_node
  results=$outside/build/gpu-node
  sizes >"$table"
  limits >>"$table"
  holds "no MPI is found before it is carried" in_node '! { mpirun --version || mpiexec --version; } >/dev/null 2>&1'
  kill_in_the_middle
  call late "node version" TOTAL_S=4 >"$folder/late.log" 2>&1 || wrong "a call without time fails"
  holds "late: left.txt names all parts" is_left "$results/late" 'node version '
  call all "node version check ${jobs_parts[*]} ${gpu_parts[*]}" >"$folder/all.log" 2>&1 || wrong "the call fails: $(tail -n 20 "$folder/all.log")"
  finished "$results/all" node version check "${jobs_parts[@]}" "${gpu_parts[@]}"
  cat "$results/all/table.txt" >>"$table"
  try_emulated_gpu
  cat "$table"
  say "$faults faults"
  ((faults > 0)) || rm -rf "$folder/node"
  ((faults == 0))
}

rehearse
