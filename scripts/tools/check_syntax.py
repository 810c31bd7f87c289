#!/usr/bin/env python3
"""Checks all C and C++ sources of a configured build folder with its compiler, without making code.

    cmake --preset release -B build/syntax -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19
    scripts/tools/check_syntax.py build/syntax

Headers that the build writes are written first. Sources that need another compiler (CUDA's) are left
out. The exit code is 0 where every source is right, else 1; what the compiler says is printed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

LANGUAGES = {".c", ".cpp", ".cxx"}
# Flags with a value that name what a compilation writes.
OUTPUTS = {"-o", "-MF", "-MT", "-MQ"}


def write_headers(folder):
    """Runs what writes headers that sources include. Ninja would build the libraries first that their target uses."""
    def ninja(*words):
        return subprocess.run(["ninja", "-C", str(folder), "-t", *words], check=True, capture_output=True,
                              text=True).stdout

    for line in ninja("targets", "all").splitlines():
        name = line.rsplit(":", 1)[0]
        if name.endswith(".hpp") and not pathlib.Path(name).is_absolute():
            subprocess.run(ninja("commands", "-s", name), shell=True, cwd=folder, check=True)


def words_of(entry):
    return entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])


def object_of(entry):
    words = words_of(entry)
    return words[words.index("-o") + 1]


def is_for_cuda(entry):
    """Also a .cpp of kernels can be for nvcc, which has no option for the syntax alone."""
    return pathlib.Path(words_of(entry)[0]).name == "nvcc"


def syntax_command(entry):
    """The entry's command, which reads the source and writes nothing."""
    command, skip = [], False
    for word in words_of(entry):
        if skip:
            skip = False
        elif word in OUTPUTS:
            skip = True
        elif word not in {"-c", "-MD", "-MMD"}:
            command.append(word)
    return command + ["-fsyntax-only", "-fdiagnostics-color=never"]


def check(entry):
    started = time.monotonic()
    ran = subprocess.run(syntax_command(entry), cwd=entry["directory"], capture_output=True, text=True, check=False)
    return entry["file"], ran.returncode, (ran.stdout + ran.stderr).strip(), time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a build folder that CMake has configured with Ninja")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="sources at once (the number of cores)")
    parser.add_argument("--only", default="", help="only objects whose path matches this regular expression")
    parser.add_argument("--without", default="$^", help="no objects whose path matches this regular expression")
    parser.add_argument("--slowest", type=int, default=0, help="also name so many sources that took longest")
    options = parser.parse_args()

    entries = json.loads((options.folder / "compile_commands.json").read_text())
    entries = [entry for entry in entries
               if pathlib.Path(entry["file"]).suffix in LANGUAGES and not is_for_cuda(entry)
               and re.search(options.only, object_of(entry)) and not re.search(options.without, object_of(entry))]
    if not entries:
        sys.exit(f"{options.folder} has no source to check")
    write_headers(options.folder)

    started = time.monotonic()
    wrong, warned, times = 0, 0, []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file, code, said, took_s in pool.map(check, entries):
            times.append((took_s, file))
            wrong += code != 0
            warned += code == 0 and bool(said)
            if said or code:
                print(f"--- {file} (exit code {code})\n{said}", flush=True)
    for took_s, file in sorted(times, reverse=True)[:options.slowest]:
        print(f"{took_s:6.1f} s  {file}")
    print(f"{len(entries)} sources checked in {time.monotonic() - started:.0f} s: {wrong} wrong, {warned} with warnings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
