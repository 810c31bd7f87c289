#!/usr/bin/env bash
# For a GPU node without a network: packs there what building needs and such a node lacks, and there
# builds, tests and measures, with one table at the end.
#
#   scripts/gpu-node.sh pack [FOLDER] [PACKAGE...]
#     On a Debian or Ubuntu with its package registry: downloads MPI and the libraries, reduces them
#     to what building and running reads, and leaves FOLDER/packages.tar.gz. Further packages, such
#     as cmake and ninja-build, where the node lacks these, too. Needs no root.
#   scripts/gpu-node.sh run [FOLDER] [checks|bench|sanitize|all]...
#     On the node, in a copy of this checkout with FOLDER in it: unpacks to FOLDER.unpacked, builds
#     the preset cuda for the node's GPU and runs the parts asked for (default all). A part that
#     fails or takes too long does not stop the others. A later call builds only what has changed.
#     The node brings g++ 12 or newer, CMake 3.25, nvcc 12.8 or newer, and cuDNN: the toolkit's or
#     PyTorch's. Exit code: 0 where nothing failed, 1 otherwise.
#
# FOLDER is build/gpu-node where it is not given. LOGS names the folder for table.txt and log.txt
# (default FOLDER.logs); TOTAL_S the seconds that all parts together may take (default: no limit);
# SANITIZE_TESTS the GoogleTest filter of `sanitize`. docs/gpu.md says what the parts are.
set -euo pipefail

# shellcheck source=scripts/needs.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/needs.sh"

usage() {
  sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

(($# > 0)) || usage
verb=$1
shift
[[ $verb == pack || $verb == run ]] || usage
folder=$checkout/build/gpu-node
words='^(checks|bench|sanitize|all)$'
if (($# > 0)) && ! [[ $verb == run && $1 =~ $words ]]; then
  # shellcheck disable=SC2034  # for the verb
  folder=$(realpath -m -- "$1")
  shift
fi
for word in "$@"; do
  [[ $verb == pack || $word =~ $words ]] || usage
done
# shellcheck source=/dev/null
source "$checkout/scripts/gpu-node/$verb.sh"
