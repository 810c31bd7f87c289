# The verb `carry` of gpu-node.sh, which sources this. `rehearse` packs by it, too.
# shellcheck shell=bash disable=SC2154  # folder, checkout, say: the caller's
#
# Variables: ARCHITECTURES (90-real), BUILD (build/cuda), NODE_PYTHON (3.12: the node's version),
# DEEPSPEED (0.19.8), TORCH_PYTHON (an interpreter with the node's version of PyTorch, to build
# FusedAdam and CPUAdam; without one the node builds them), NCCL_PACKAGE (nvidia-nccl-cu13), PROGRAMS (of those
# below; fewer leave room for nccl.tar.xz beside carry.tar.xz), XZ_LEVEL (6).

build=${BUILD:-$checkout/build/cuda}
architectures=${ARCHITECTURES:-90-real}
programs=(dstune-mpi libdstune-mpi.so libdstune-mpi-comm.so tests/test_device_kernels tests/test_parallel_collectives_on_gpus
  tests/test_parallel_train_on_gpus tests/test_parallel_experiments_on_gpus tests/test_e2e_backends
  tests/hold_gpu_memory bench/gpu_step_bench bench/kernels_bench)
[[ -z ${PROGRAMS:-} ]] || read -ra programs <<<"$PROGRAMS"

build_programs() {
  cmake --preset cuda -B "$build" "-DCMAKE_CUDA_ARCHITECTURES=$architectures" --log-level=WARNING
  cmake --build "$build" --parallel "$(build_jobs)" --target dstune-mpi dstune-mpi-library device_tests gpu_step_bench kernels_bench
}

# A run needs neither headers nor what only a linker reads.
keep_what_runs() {
  tar -C "$work" -xzf "$folder/packages.tar.gz"
  rm -rf "$work"/usr/include "$work"/usr/lib/cmake "$work"/usr/share/{eigen3,cmake,nlohmann_json,pkgconfig} \
    "$work"/usr/lib/*/cmake "$work"/usr/lib/*/openmpi/include "$work"/usr/lib/*/*.a "$work"/usr/bin/{cmake,ctest,ninja}
}

# Wheels for the node's Python: DeepSpeed, and what of its needs no PyTorch installation brings.
download_wheels() {
  local wheels=$folder/wheels name core environment=$folder/wheel-environment
  [[ -z $(find "$wheels" -name "deepspeed-${DEEPSPEED:-0.19.8}-*.whl" 2>/dev/null) ]] || return 0
  mkdir -p "$wheels"
  python3 -m venv "$environment"
  "$environment/bin/pip" install -q setuptools wheel packaging ninja psutil py-cpuinfo numpy pydantic hjson
  DS_BUILD_OPS=0 "$environment/bin/pip" wheel -q --no-deps --no-build-isolation --no-binary deepspeed \
    -w "$wheels" "deepspeed==${DEEPSPEED:-0.19.8}"
  local download=("$environment/bin/pip" download -q --no-deps --only-binary=:all: --python-version "${NODE_PYTHON:-3.12}"
    --implementation cp --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$wheels")
  for name in hjson pydantic annotated-types typing-inspection msgpack py-cpuinfo; do "${download[@]}" "$name"; done
  core=$(unzip -p "$wheels"/pydantic-2*.whl '*/METADATA' | sed -n 's/^Requires-Dist: \(pydantic-core==[^ ;]*\).*/\1/p')
  "${download[@]}" "$core"
  rm -rf "$environment"
}

# The optimizers that DeepSpeed takes on GPUs, and where it offloads them. No compiler may be started in
# the job. The processor's is for the instructions of this one, which the node may lack.
build_operators() {
  [[ -n ${TORCH_PYTHON:-} ]] || return 0
  local has
  has=$("$TORCH_PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [[ $has == "${NODE_PYTHON:-3.12}" ]] || { say "$TORCH_PYTHON is Python $has, and the node has ${NODE_PYTHON:-3.12}"; exit 1; }
  local extensions=$folder/extensions name include
  include=$("$TORCH_PYTHON" -c 'import importlib.util as u; print(*u.find_spec("nvidia").submodule_search_locations)')/cu13/include
  for name in FusedAdam:fused_adam CPUAdam:cpu_adam; do
    if [[ ! -e $extensions/${name#*:}/${name#*:}.so ]]; then
      # "90-real" is 9.0 there.
      DS_ACCELERATOR=cuda TORCH_CUDA_ARCH_LIST=$(sed 's/\(.\)\(-.*\)\{0,1\}$/.\1/' <<<"${architectures%%;*}") TORCH_EXTENSIONS_DIR=$extensions \
        CUDA_HOME=${CUDA_HOME:-/usr/local/cuda} CPATH=$include PATH=$(dirname "$TORCH_PYTHON"):$PATH \
        "$TORCH_PYTHON" -c "from deepspeed.ops.op_builder import ${name%:*}Builder as b; b().load()" >&2
    fi
    strip -o "$work/${name#*:}.so" "$extensions/${name#*:}/${name#*:}.so"
  done
  processor_instructions >"$work/instructions"
}

# NCCL 2.30 or newer takes two ranks of one GPU. Its library is cut to one architecture.
pack_nccl() {
  [[ ! -e $folder/nccl.tar.xz ]] || return 0
  local wheel=$folder/nccl-wheel
  mkdir -p "$wheel"
  python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_18_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 -d "$wheel" "${NCCL_PACKAGE:-nvidia-nccl-cu13}>=2.30"
  unzip -q -o "$wheel"/*.whl 'nvidia/nccl/lib/libnccl.so.2' -d "$wheel"
  mkdir -p "$wheel/slim"
  python3 "$checkout/scripts/gpu-node/keep_architecture.py" "${architectures%%-*}" \
    "$wheel/nvidia/nccl/lib/libnccl.so.2" "$wheel/slim/libnccl.so.2"
  tar -C "$wheel/slim" -cf - libnccl.so.2 | xz -T0 -6 >"$folder/nccl.tar.xz.new"
  mv "$folder/nccl.tar.xz.new" "$folder/nccl.tar.xz"
  rm -rf "$wheel"
}

# The size of the repository's files: the node gets a copy of them.
sources_kib() { (cd "$checkout" && git ls-files -z --cached --others --exclude-standard | { du -ck --files0-from=- 2>/dev/null || true; } | tail -n 1 | cut -f1); }

# Python's tarfile leaves out the right to execute where an owner can not be given. A container knows 0.
ours=(--owner=0 --group=0 --numeric-owner)

# pack_programs PROGRAM...: with what is in $work, as carry.tar.xz.
pack_programs() {
  local program
  mkdir -p "$work/bin" "$work/wheels"
  for program in "$@"; do strip -o "$work/bin/${program##*/}" "$build/$program"; done
  echo "$checkout" >"$work/checkout"
  echo "$build" >"$work/build"
  tar -C "$work" "${ours[@]}" -cf - . | xz -T0 "-${XZ_LEVEL:-6}" >"$folder/carry.tar.xz.new"
  mv "$folder/carry.tar.xz.new" "$folder/carry.tar.xz"
}

carry() {
  local program size
  for program in git pip:python3 unzip xz strip; do
    command -v "${program#*:}" >/dev/null || { say "carry needs ${program#*:}"; exit 1; }
  done
  mkdir -p "$folder"
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$work'" EXIT
  mkdir -p "$work/bin" "$work/wheels"
  [[ -e $folder/packages.tar.gz ]] || bash "$checkout/scripts/gpu-node.sh" pack "$folder"
  build_programs
  download_wheels
  keep_what_runs
  build_operators
  cp "$folder/wheels"/*.whl "$work/wheels/"
  pack_programs "${programs[@]}"
  pack_nccl
  for size in carry nccl; do
    size=$folder/$size.tar.xz
    say "$size: $(du -h "$size" | cut -f1); with the sources $((($(stat -c %s "$size") / 1024 + $(sources_kib)) / 1024)) MiB"
  done
}

[[ $verb != carry ]] || carry
