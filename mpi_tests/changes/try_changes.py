#!/usr/bin/env python3
"""Applies the example changes of this folder, all together, builds what they touch and runs its tests.

    try_changes.py [NAME ...] [--folder FOLDER] [--apply-only | --refresh]

NAME is a diff of this folder without its ending; without one all are taken. The work is done in a copy of the
checkout in FOLDER, which is kept, so that the next call builds only what differs.

The head of a diff says in lines `files: N` how many files it touches beside tests and documents, `suites: NAME ...`
which folders of mpi_tests/unit must pass, and `run: COMMAND` what else must succeed in the build folder.

--refresh makes the diffs anew on what is committed, by a merge of three. If that has conflicts, it names a folder:
solve them there, and call it again. docs/inside/contributing.md says how such a change is made.
"""
import argparse
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
COPIED = ["CMakeLists.txt", "CMakePresets.json", "README.md", "docs", "hostfiles", "include", "kernels", "mpi_tests", "scripts",
          "src"]
ALWAYS = ["names", "layers", "messages"]


def call(command, folder, what, **options):
    """What the command prints. Ends the program where it fails."""
    # The copy may lie inside the checkout, but is none.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    ended = subprocess.run(command, cwd=folder, env=environment, shell=isinstance(command, str), text=True,
                           errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if ended.returncode != 0:
        # A build goes on beside what failed: the first error may stand far above the end.
        errors = [line for line in ended.stdout.splitlines() if "error" in line.lower()]
        sys.exit("\n".join([f"{what} failed with exit code {ended.returncode}:", *errors[:20], "…",
                            ended.stdout[-4000:]]))
    return ended.stdout


def head_of(change):
    """What stands above the diff."""
    return change.read_text(encoding="utf-8").split("\ndiff ", 1)[0]


def lines_of(change, word):
    """The values of the head's lines `word: value`."""
    return [line.removeprefix(word + ":").strip() for line in head_of(change).splitlines()
            if line.startswith(word + ":")]


def copy_sources(target):
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)


def apply(change, copy, *options):
    call(["git", "apply", *options, str(change)], copy, f"{change.name}: git apply {' '.join(options)}")


def check_files(change):
    files = re.findall(r"^diff --git a/(\S+) ", change.read_text(encoding="utf-8"), re.MULTILINE)
    files = [name for name in files if not name.startswith(("mpi_tests/", "docs/"))]
    if lines_of(change, "files") != [str(len(files))]:
        sys.exit(f"{change.name} touches {len(files)} files beside tests and documents: {', '.join(files)}")
    print(f"{change.name}: {len(files)} files", *files, sep="\n  ", flush=True)


def update(target, source):
    """Makes the folder like the other; what is the same keeps its time."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in target.iterdir():
        if not (source / entry.name).exists():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for entry in source.iterdir():
        if entry.is_dir():
            update(target / entry.name, entry)
        elif not (target / entry.name).exists() or not filecmp.cmp(entry, target / entry.name, shallow=False):
            shutil.copy(entry, target / entry.name)


def build_and_test(changes, copy, build):
    # As users build, but for the optimisation: what is run here is small.
    call(["cmake", "-S", str(copy), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
          "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DDSTUNE_CUDA=OFF", "-DDSTUNE_BENCHMARKS=OFF"], copy, "cmake")
    suites = sorted({suite for change in changes for line in lines_of(change, "suites") for suite in line.split()})
    call(["cmake", "--build", str(build), "--parallel", str(os.cpu_count()), "--target", "dstune-mpi", "dstune-reference",
          *[f"test_unit_{suite}" for suite in suites]], copy, "the build")
    call([str(build / "dstune-reference"), "docs", str(copy / "docs")], build, "the reference")
    tests = "|".join([*ALWAYS, *[rf"unit\.{suite}" for suite in suites]])
    print(call(["ctest", "--output-on-failure", "-j", str(os.cpu_count()), "-R", f"^({tests})$"], build, "a suite"))
    for change in changes:
        for command in lines_of(change, "run"):
            call(command, build, f"{change.name}: {command}")


def refresh(change, folder):
    tree = folder / change.stem
    if not tree.exists():
        call(["git", "worktree", "add", "--detach", str(tree), "HEAD"], CHECKOUT, "git worktree")
        call(["git", "apply", "--3way", "--index", str(change)], tree, f"{change.name} in {tree}: the merge")
    call(["git", "add", "--all"], tree, "git add")
    call(["git", "diff", "--cached", "--check", "HEAD"], tree, f"{change.name} in {tree}: git diff --check")
    diff = call(["git", "diff", "--cached", "--full-index", "--no-renames", "-U2", "HEAD"], tree, "git diff")
    change.write_text(head_of(change).rstrip("\n") + "\n\n" + diff, encoding="utf-8")
    call(["git", "worktree", "remove", "--force", str(tree)], CHECKOUT, "git worktree")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=pathlib.Path, default=CHECKOUT / "build" / "changes")
    parser.add_argument("--apply-only", action="store_true", help="build and run nothing")
    parser.add_argument("--refresh", action="store_true", help="write the diffs anew")
    options = parser.parse_args()
    folder = options.folder.resolve()
    changes = [HERE / f"{name}.diff" for name in options.names] or sorted(HERE.glob("*.diff"))
    if options.refresh:
        for change in changes:
            refresh(change, folder / "refresh")
        return
    patched = folder / "patched"
    copy_sources(patched)
    for change in changes:
        check_files(change)
        apply(change, patched, "--check")
    for change in changes:
        apply(change, patched)
    if options.apply_only:
        return
    update(folder / "checkout", patched)
    build_and_test(changes, folder / "checkout", folder / "build")
    print("applied, built and run:", *[change.stem for change in changes], flush=True)


if __name__ == "__main__":
    main()
