#!/usr/bin/env python3
"""Checks the registers, the local memory and the occupancy of all CUDA kernels. It needs no GPU.

    scripts/tools/check_cuda_kernels.py build/release                   # for GPUs that the build is for
    scripts/tools/check_cuda_kernels.py build/release 80 90 100 120     # compiles for those that it lacks

The figures are those of ptxas, which the build keeps (scripts/cmake/keep_ptxas.sh). A kernel fails where
it spills registers, has an array in local memory, or fills less than 37.5 % of a multiprocessor's threads.
EXCEPTIONS names those that may, and why. The exit code is 1 where a kernel fails, 77 without CUDA.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# kernels/cuda/isa/grid.hpp
THREADS = 256
WARPS = THREADS // 32
LEAST_OCCUPANCY = 0.375

# CUDA's programming guide, "Technical Specifications per Compute Capability": of a multiprocessor.
REGISTERS = 65536
Limits = collections.namedtuple("Limits", "warps blocks shared_bytes")
LIMITS = {80: Limits(64, 32, 164 << 10), 90: Limits(64, 32, 228 << 10),
          100: Limits(64, 32, 228 << 10), 120: Limits(48, 24, 100 << 10)}
SYSTEM_SHARED_BYTES = 1024  # of each block

# (kernel, what may be, why). An exception that no kernel needs is an error.
EXCEPTIONS = [
    ("RotationBy<.*>", "local memory", "the toolkit's cosine keeps digits of 2/pi there, for large angles"),
    ("(AttentionForward|QueryGradients|KeyGradients)<.*>", "occupancy",
     "tiles of fp32 fill the shared memory"),
]

Kernel = collections.namedtuple("Kernel", "name architecture registers stack_bytes spill_bytes static_bytes")


def dynamic_bytes(name):
    """The most shared memory that a launch asks for, as the sources' launches have it."""
    arguments = [int(word) for word in re.findall(r"\b\d+\b", name)]
    if match := re.match(r"(AttentionForward|QueryGradients|KeyGradients)<(\d+)>", name):
        size = 32 * int(match[2])
        rows = 16 if size > 128 else 32
        own = rows * size * (1 if match[1] == "AttentionForward" else 2)
        return 4 * (own + 2 * 32 * (size + 1) + rows * 32)
    if match := re.match(r"NormBackwardOnce<(true|false), 2>", name):
        return 64 + 4 * 4096 * (2 if match[1] == "true" else 1)
    if name.startswith("ColumnPartials"):
        return 4 * 2 * WARPS * 32 * arguments[0]
    if "Scattering" in name:
        return 4 * (2 * 2048 + WARPS)
    return 1024  # sums over a block; a position's angles


def kernels_of(text):
    """What ptxas -v says, in order: the kernel, its local memory, its registers."""
    entry = local = None
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)", line):
            entry = match.groups()
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            local = [int(number) for number in match.groups()]
        elif entry and (match := re.search(r"Used (\d+) registers(?:.* (\d+) bytes smem)?", line)):
            yield Kernel(entry[0], int(entry[1]), int(match[1]), local[0], local[1] + local[2], int(match[2] or 0))
            entry = None


def with_short_names(kernels):
    names = subprocess.run(["c++filt"], input="\n".join(kernel.name for kernel in kernels), text=True,
                           check=True, capture_output=True).stdout.splitlines()
    for kernel, name in zip(kernels, names):
        name = re.sub(r"(\w+|\(anonymous namespace\))::", "", name)
        yield kernel._replace(name=re.sub(r" >", ">", re.search(r"run<(.*?) ?>\(", name)[1]))


def occupancy(kernel):
    limits = LIMITS[kernel.architecture]
    registers_of_warp = -(-kernel.registers * 32 // 256) * 256
    shared = SYSTEM_SHARED_BYTES + kernel.static_bytes + dynamic_bytes(kernel.name)
    blocks = min(limits.blocks, limits.warps // WARPS, REGISTERS // registers_of_warp // WARPS,
                 limits.shared_bytes // shared)
    return blocks * WARPS / limits.warps


def compiled_for(command, architecture, folder):
    """What ptxas says when nvcc compiles the source for another GPU."""
    words = [word for word in shlex.split(command["command"]) if not word.startswith("--generate-code")]
    words[words.index("-o") + 1] = os.path.join(folder, f"{pathlib.Path(command['file']).stem}.{architecture}")
    words[words.index("-c")] = "-cubin"
    words.append(f"--generate-code=arch=compute_{architecture},code=sm_{architecture}")
    run = subprocess.run(words, cwd=command["directory"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{shlex.join(words)}\n{run.stdout}{run.stderr}")
    return run.stderr


def all_kernels(build, wanted):
    commands = [command for command in json.loads((build / "compile_commands.json").read_text())
                if " -Xptxas=-v " in command["command"]]
    if not commands:
        print("this build has no CUDA kernels")
        sys.exit(77)
    texts = []
    for command in commands:
        words = shlex.split(command["command"])
        kept = pathlib.Path(command["directory"], words[words.index("-o") + 1] + ".ptxas")
        if not kept.exists():
            sys.exit(f"{kept} is missing: build the target dstune_kernels_cuda first")
        texts.append(kept.read_text())
    built = {kernel.architecture for text in texts for kernel in kernels_of(text)}
    lacking = [architecture for architecture in wanted if architecture not in built]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(compiled_for, command, architecture, folder)
                for architecture in lacking for command in commands]
        texts += [run.result() for run in runs]
    kernels = with_short_names([kernel for text in texts for kernel in kernels_of(text)])
    return [kernel for kernel in kernels if kernel.architecture in (wanted or LIMITS)]


def faults_of(kernel):
    if kernel.spill_bytes:
        yield "spills", f"spills {kernel.spill_bytes} bytes"
    elif kernel.stack_bytes:
        yield "local memory", f"has {kernel.stack_bytes} bytes of local memory"
    if occupancy(kernel) < LEAST_OCCUPANCY:
        yield "occupancy", f"has an occupancy of {occupancy(kernel):.1%}"


def print_table(kernels):
    """Registers and occupancy of each kernel, a column for each GPU."""
    architectures = sorted({kernel.architecture for kernel in kernels})
    of = {(kernel.name, kernel.architecture): kernel for kernel in kernels}
    print(f"{'registers, occupancy in %':58}" + "".join(f"{f'sm_{a}':>11}" for a in architectures))
    for name in sorted({kernel.name for kernel in kernels}):
        cells = [f"{of[name, a].registers:5} {100 * occupancy(of[name, a]):5.1f}" for a in architectures]
        print(f"{name:58}" + "".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("architectures", nargs="*", type=int, help=f"of {list(LIMITS)}")
    arguments = parser.parse_args()
    if not LIMITS.keys() >= set(arguments.architectures):
        parser.error(f"the architectures that are known are {list(LIMITS)}")
    kernels = all_kernels(arguments.build, arguments.architectures)
    if not kernels:
        print("no limits are known of the GPUs that this build is for")
        sys.exit(77)
    print_table(kernels)
    failed = False
    needed = set()
    for kernel in kernels:
        for what, words in faults_of(kernel):
            excused = [row for row in EXCEPTIONS if row[1] == what and re.fullmatch(row[0], kernel.name)]
            needed.update(excused)
            if not excused:
                print(f"sm_{kernel.architecture}: {kernel.name} {words}")
                failed = True
    for row in EXCEPTIONS:
        print(f"{row[0]}, {row[1]}: {row[2]}" + ("" if row in needed else " (no kernel needs this exception)"))
    sys.exit(1 if failed or not needed.issuperset(EXCEPTIONS) else 0)


if __name__ == "__main__":
    main()
