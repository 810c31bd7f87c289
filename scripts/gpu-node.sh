#!/usr/bin/env bash
# Measures on a GPU node that is bare: no network, no MPI, no compiler needed, a few minutes at a
# time. Everything is built elsewhere and carried there.
#
#   scripts/gpu-node.sh carry [FOLDER]
#     Where this checkout builds and a package registry answers (Debian or Ubuntu): builds for the
#     GPU (ARCHITECTURES, default 90-real), and leaves in FOLDER what the node needs:
#     carry.tar.xz (programs, tests, MPI, libraries, DeepSpeed) and nccl.tar.xz (an NCCL that serves
#     two ranks of one GPU). It prints the size of each, and with the sources.
#   scripts/gpu-node.sh run FOLDER PART...
#     On the node, in a copy of this checkout with FOLDER in it: unpacks and runs the parts. Results
#     go to OUT (default FOLDER/out), rewritten after each part: table.txt, left.txt with the parts
#     that are left, logs.tgz. The node brings a driver, and a python3 with PyTorch, whose packages
#     have cuDNN, cuBLAS and NCCL.
#     Groups of parts, a call each: first, second, beside, third, judge, public. TOTAL_S (default 570) limits
#     them together.
#   scripts/gpu-node.sh pack [FOLDER]
#     The first part of `carry` alone: MPI and libraries as packages.tar.gz.
#   scripts/gpu-node.sh rehearse [FOLDER] [ROOT_FOLDER]
#     What `carry` left in FOLDER, on a bare Ubuntu 24.04 in ROOT_FOLDER (default FOLDER/root; as root,
#     with a package registry where it has to be made) without a network or GPU: whether the parts run,
#     what comes back, what is left when the node is gone. With / it is this system, its MPI hidden,
#     and what is built in BUILD (default build/release).
#
# FOLDER is build/gpu-node where it is not given to carry, pack or rehearse. docs/inside/gpu.md says what the
# parts are. Exit code of run: 0 where nothing failed, 1 otherwise.
set -euo pipefail

# shellcheck source=scripts/needs.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/needs.sh"

usage() {
  sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

# Of the processor here: what a compiler takes that builds for it alone.
processor_instructions() {
  sed -n '/^flags/{s/.*: //p;q}' /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx|bmi|fma|f16c|movbe|abm|gfni)' | LC_ALL=C sort || true
}

(($# > 0)) || usage
verb=$1
shift
case $verb in
  run) (($# >= 2)) || usage ;;
  rehearse) (($# <= 2)) || usage ;;
  pack | carry) (($# <= 1)) || usage ;;
  *) usage ;;
esac
# shellcheck disable=SC2034  # for the verb
folder=$(realpath -m -- "${1:-$checkout/build/gpu-node}")
(($# == 0)) || shift
# shellcheck source=/dev/null
source "$checkout/scripts/gpu-node/$verb.sh"
