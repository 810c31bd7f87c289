#!/bin/sh
# Runs a command of nvcc with -Xptxas=-v, and keeps what ptxas says of each kernel in OBJECT.ptxas.
# scripts/tools/check_cuda_kernels.py reads it. All else that nvcc says is shown.
object=
previous=
for word; do
  [ "$previous" != -o ] || object=$word
  previous=$word
done
"$@" 2>"$object.ptxas"
code=$?
grep -vE '^ptxas info|bytes stack frame' "$object.ptxas" >&2
exit $code
