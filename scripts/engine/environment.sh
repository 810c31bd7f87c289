#!/usr/bin/env bash
# shellcheck disable=SC2154,SC2034  # checkout: of needs.sh; missing_packages: for install_missing
# The Python environment that the engine's tests and examples run in. setup.sh sources it.
#   DSTUNE_ENGINE_ENVIRONMENT   its folder; without it build/engine of the checkout
#   DSTUNE_TORCH_INDEX          the package index that PyTorch alone comes from: one of wheels for CPUs
#   DSTUNE_ENGINE_OPERATORS     DeepSpeed's operators to build, "" for none; without it those of Adam and AdamW
engine_environment=${DSTUNE_ENGINE_ENVIRONMENT:-$checkout/build/engine}
engine_constraints=$checkout/scripts/engine/constraints.txt
engine_packages=(torch transformers accelerate peft)
# The two serve Adam without and with offload.
read -ra engine_operators <<<"${DSTUNE_ENGINE_OPERATORS-fused_adam cpu_adam}"
# The build of an operator asks for these before DeepSpeed is there.
engine_build_packages=(setuptools wheel ninja numpy py-cpuinfo)

# Debian keeps two things apart from python3: what makes environments, and the headers that operators include.
ensure_python_parts() {
  python3 -c 'import ensurepip, os, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null && return
  if command -v apt-get >/dev/null && can_become_root; then
    missing_packages=(python3-venv python3-dev)
    install_missing || say "apt-get did not succeed"
  fi
}

# install_packages PYTHON [PIP'S ARGUMENTS]: all but DeepSpeed.
install_packages() {
  local python=$1
  shift
  "$python" -m pip install -q "$@" "${engine_build_packages[@]}" || return
  # PyTorch's own dependencies come from the usual index, which has all of their releases.
  if [[ -n ${DSTUNE_TORCH_INDEX:-} ]]; then
    "$python" -m pip install -q --no-deps --index-url "$DSTUNE_TORCH_INDEX" "$@" torch || return
  fi
  "$python" -m pip install -q "$@" "${engine_packages[@]}"
}

# operator_is_built PYTHON NAME: does the installed DeepSpeed have it? Nothing is imported, which would take long.
operator_is_built() {
  "$1" - "$2" <<'PY'
import importlib.util
import os
import runpy
import sys

folder = importlib.util.find_spec("deepspeed").submodule_search_locations[0]
facts = runpy.run_path(os.path.join(folder, "git_version_info_installed.py"))
sys.exit(0 if facts["installed_ops"].get(sys.argv[1]) else 1)
PY
}

# install_deepspeed PYTHON [PIP'S ARGUMENTS]: with the operators, or without where they do not compile. The cache
# of pip takes no part: a wheel of the same name may be without operators, or of another PyTorch.
install_deepspeed() {
  local python=$1 folder log name settings=() missing=()
  shift
  folder=$(dirname -- "$python")
  log=$folder/../operators.log
  for name in "${engine_operators[@]}"; do settings+=("DS_BUILD_${name^^}=1"); done
  # ninja compiles sources side by side.
  if [[ ${#settings[@]} -eq 0 ]] ||
    ! env PATH="$folder:$PATH" DS_BUILD_OPS=0 "${settings[@]}" DS_ENABLE_NINJA=1 MAX_JOBS="$(build_jobs)" \
      "$python" -m pip install -v --no-cache-dir --no-binary deepspeed --no-build-isolation "$@" deepspeed \
      >"$log" 2>&1; then
    DS_BUILD_OPS=0 "$python" -m pip install -q --no-build-isolation "$@" deepspeed || return
  fi
  for name in "${engine_operators[@]}"; do
    operator_is_built "$python" "$name" || missing+=("$name")
  done
  if [[ ${#missing[@]} -gt 0 ]]; then
    say "DeepSpeed's operators could not be built, and it is installed without: ${missing[*]}"
    say "  $(cd -- "$folder/.." && pwd)/operators.log says why. The engine's examples do without."
  fi
}

# make_environment FOLDER [PIP'S ARGUMENTS]: what is there already stays.
make_environment() {
  local folder=$1 python=$1/bin/python
  shift
  if [[ -e $folder/complete ]]; then
    say "The engine's environment is there: $folder"
    return
  fi
  ensure_python_parts
  say "Making the engine's environment in $folder"
  if [[ -n ${DSTUNE_TORCH_INDEX:-} ]]; then
    say "  PyTorch comes from the index that DSTUNE_TORCH_INDEX names"
  else
    say "  It downloads 3.1 GB and takes 5.7 GB of disk, of which what serves GPUs takes 4.5 GB. For CPUs alone"
    say "  DSTUNE_TORCH_INDEX can name a package index with PyTorch for CPUs, which brings none of that"
  fi
  python3 -m venv "$folder" && install_packages "$python" "$@" && install_deepspeed "$python" "$@" &&
    touch "$folder/complete"
}

make_engine_environment() { make_environment "$engine_environment" -c "$engine_constraints"; }
