#!/usr/bin/env python3
"""Applies the example changes of this folder, all together, builds and runs them.

    try_changes.py CHECKOUT FOLDER [--apply-only] [CHANGE.diff ...]

The work is done in a copy of CHECKOUT in FOLDER. The head of a diff says in lines `build: TARGET ...` and
`run: COMMAND` what is built and what must succeed then, in the build folder. Each diff also applies alone.
docs/contributing.md says how such a change is made; a diff that no longer applies is made anew by its steps.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

COPIED = ["CMakeLists.txt", "CMakePresets.json", "docs", "include", "kernels", "mpi_tests", "scripts", "src"]


def call(command, folder, what):
    # The copy may lie inside the checkout, but is none.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    ended = subprocess.run(command, cwd=folder, env=environment, shell=isinstance(command, str), text=True,
                           errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode != 0:
        # A build goes on beside what failed: the first error may stand far above the end.
        errors = [line for line in ended.stdout.splitlines() if "error" in line.lower()]
        sys.exit("\n".join([f"{what} failed with exit code {ended.returncode}:", *errors[:20], "…",
                            ended.stdout[-4000:]]))


def copy_of(checkout, folder):
    copy = folder / "checkout"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for name in COPIED:
        source = checkout / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    return copy


def lines_of(change, word):
    """The values of the lines `word: value` above the diff."""
    head = change.read_text(encoding="utf-8").split("\ndiff ", 1)[0]
    return [line.removeprefix(word + ":").strip() for line in head.splitlines() if line.startswith(word + ":")]


def patch(change, copy, *options):
    """What stands around a change may have moved, and a little of it may have changed."""
    call(["git", "apply", "-C1", *options, str(change)], copy, f"{change.name}: git apply {' '.join(options)}")


def configure(copy, build):
    """As users build, but for the optimisation: what is run here is small."""
    call(["cmake", "-S", str(copy), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
          "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DDSTUNE_CUDA=OFF", "-DDSTUNE_BENCHMARKS=OFF"], copy, "cmake")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("changes", type=pathlib.Path, nargs="*")
    parser.add_argument("--apply-only", action="store_true", help="build and run nothing")
    options = parser.parse_args()
    here = pathlib.Path(__file__).resolve().parent
    changes = [path.resolve() for path in options.changes] or sorted(here.glob("*.diff"))
    copy = copy_of(options.checkout.resolve(), options.folder.resolve())
    build = options.folder.resolve() / "build"
    for change in changes:
        patch(change, copy, "--check")
    for change in changes:
        patch(change, copy)
    if options.apply_only:
        return
    configure(copy, build)
    targets = {target for change in changes for line in lines_of(change, "build") for target in line.split()}
    call(["cmake", "--build", str(build), "--parallel", str(os.cpu_count()), "--target", *sorted(targets)],
         copy, "the build")
    for change in changes:
        for command in lines_of(change, "run"):
            call(command, build, f"{change.name}: {command}")
        print(f"{change.name}: applied, built and run", flush=True)


if __name__ == "__main__":
    main()
