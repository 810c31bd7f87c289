#!/usr/bin/env python3
"""How long `dstune-mpi check` takes: each file in a process of its own, and many files in one.

    check_files.py PROGRAM [--runs 11] [--many 1000] FILE|FOLDER ...

A folder stands for the .json and .yaml files in it. Prints the median and the longest time of a file,
with its name, and the median time of one call with --many files, the given ones again and again.
"""
import argparse
import itertools
import pathlib
import statistics
import subprocess
import time


def seconds(program, files):
    start = time.perf_counter()
    code = subprocess.run([program, 'check', *files], stdout=subprocess.DEVNULL, check=False).returncode
    taken = time.perf_counter() - start
    if code not in (0, 3):
        raise SystemExit(f'{program} check ended with exit code {code}')
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('paths', nargs='+', type=pathlib.Path)
    parser.add_argument('--runs', type=int, default=11)
    parser.add_argument('--many', type=int, default=1000)
    options = parser.parse_args()
    files = [str(file) for path in options.paths
             for file in (sorted(path.iterdir()) if path.is_dir() else [path])
             if not path.is_dir() or file.suffix in ('.json', '.yaml')]
    program = str(pathlib.Path(options.program).resolve())
    alone = {file: statistics.median(seconds(program, [file]) for _ in range(options.runs)) for file in files}
    slowest = max(alone, key=alone.get)
    many = list(itertools.islice(itertools.cycle(files), options.many))
    together = [seconds(program, many) for _ in range(options.runs)]
    print(f'{len(files)} files, each alone: median {1e3 * statistics.median(alone.values()):.1f} ms, longest '
          f'{1e3 * alone[slowest]:.1f} ms ({slowest}); {options.many} in one call: median '
          f'{statistics.median(together):.2f} s, {min(together):.2f} to {max(together):.2f} s; {options.runs} runs')


if __name__ == '__main__':
    main()
