#!/usr/bin/env python3
"""Checks all C and C++ sources of a configured build folder with its compiler, without making code.

    cmake --preset release -B build/syntax -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19
    scripts/tools/check_syntax.py build/syntax

Headers that the build writes are written first. Sources that it writes, and those that need another
compiler (CUDA's), are left out. The exit code is 0 where every source is right, else 1; what the compiler says is printed.
What most sources include is read once: clang takes it from a precompiled header, where one can be made.
So a source that forgets to include one of these is not found here.
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
import time

LANGUAGES = {".c", ".cpp", ".cxx"}
# Flags with a value that name what a compilation writes.
OUTPUTS = {"-o", "-MF", "-MT", "-MQ"}
# Flags for the code that a compiler makes, which is not made here. With them few sources would share a header.
FOR_CODE = re.compile(r"-(O.|ffp-contract=.*|fno-semantic-interposition|M|MD|MMD|c)")
SHARED = """
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
"""
MIN_SHARED_BY = 10


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
        elif not FOR_CODE.fullmatch(word):
            command.append(word)
    return command + ["-fsyntax-only", "-fdiagnostics-color=never"]


def language(entry):
    """The flags that a precompiled header must share with its sources: not folders, macros and warnings."""
    words = [word for word in syntax_command(entry)[:-2] if not re.match("-[DIW]", word) and word != entry["file"]]
    folders = [number + shift for number, word in enumerate(words) if word in {"-isystem", "-idirafter"}
               for shift in (0, 1)]
    return tuple(word for number, word in enumerate(words) if number not in folders)


def precompile(entries, folder):
    """Headers for the sources of the same language; returns them by its flags. A compiler that can not: none."""
    made = {}
    header = folder / "shared.hpp"
    header.write_text(SHARED)
    shared_by = collections.Counter(map(language, entries))
    for flags, count in shared_by.items():
        if count < MIN_SHARED_BY or "-std=c++20" not in flags or "clang" not in flags[0]:
            continue
        path = folder / f"shared-{len(made)}.pch"
        command = [*flags, "-DGTEST_HAS_PTHREAD=1", "-x", "c++-header", str(header), "-o", str(path)]
        if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0:
            made[flags] = path
    return made


def check(entry, headers):
    started = time.monotonic()
    header = headers.get(language(entry))
    command = syntax_command(entry) + (["-include-pch", str(header)] if header else [])
    ran = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False)
    return entry["file"], ran.returncode, (ran.stdout + ran.stderr).strip(), time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a build folder that CMake has configured with Ninja")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="sources at once (the number of cores)")
    parser.add_argument("--only", default="", help="only objects whose path matches this regular expression")
    parser.add_argument("--without", default="$^", help="no objects whose path matches this regular expression")
    parser.add_argument("--slowest", type=int, default=0, help="also name so many sources that took longest")
    options = parser.parse_args()
    options.folder = options.folder.resolve()

    entries = json.loads((options.folder / "compile_commands.json").read_text())
    entries = [entry for entry in entries
               if pathlib.Path(entry["file"]).suffix in LANGUAGES and not is_for_cuda(entry)
               and pathlib.Path(entry["directory"], entry["file"]).exists()
               and re.search(options.only, object_of(entry)) and not re.search(options.without, object_of(entry))]
    if not entries:
        sys.exit(f"{options.folder} has no source to check")
    write_headers(options.folder)

    started = time.monotonic()
    wrong, warned, times = 0, 0, []
    headers = precompile(entries, options.folder)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file, code, said, took_s in pool.map(lambda entry: check(entry, headers), entries):
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
