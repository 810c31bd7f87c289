#!/usr/bin/env python3
"""Figures of a checkout, for comparing two.

  mpi_tests/bench/figures.py [CHECKOUT] lines      lines and files by folder, after clang-format
  mpi_tests/bench/figures.py [CHECKOUT] headers    the ten heaviest headers: lines after preprocessing, units that
                                                   include them, and the product
  mpi_tests/bench/figures.py [CHECKOUT] build      processor and wall time of a clean build of the program, and
                                                   of the program after one edited file in the middle of the tree
  mpi_tests/bench/figures.py [CHECKOUT] tests      the same of the tests: building them, running them (what the
                                                   test preset `release` holds)

Several may be named. CHECKOUT is another checkout than this script's. `build` and `tests` compile in its
folder build/figures without a compiler cache; on a quiet machine.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import resource
import shlex
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ('.cpp', '.hpp', '.c', '.h', '.cu', '.cuh')
# The first that a checkout has is edited.
EDITED = ('src/predict/step_time.cpp', 'src/predict/step_predictor.cpp', 'src/plan/target/target_memory.cpp')


def sources_of(checkout, *folders):
    return sorted(path for folder in folders for path in (checkout / folder).rglob('*') if path.suffix in SOURCES)


def formatted_lines(path):
    return subprocess.run(['clang-format', str(path)], capture_output=True, check=True).stdout.count(b'\n')


def print_lines(checkout):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        paths = sources_of(checkout, 'src', 'include', 'kernels', 'mpi_tests')
        lines = dict(zip(paths, pool.map(formatted_lines, paths)))
    folders = collections.defaultdict(lambda: [0, 0])
    for path, count in lines.items():
        parts = path.relative_to(checkout).parts
        depth = {'include': 3, 'src': 2, 'kernels': 1, 'mpi_tests': 2}[parts[0]]
        names = {'/'.join(parts[:min(depth, len(parts) - 1)]), parts[0]}
        for name in names | ({'production'} if parts[0] != 'mpi_tests' else set()):
            folders[name][0] += 1
            folders[name][1] += count
    print(f'{"folder":28} {"files":>6} {"lines":>7}')
    for name, (files, count) in sorted(folders.items()):
        print(f'{name:28} {files:6} {count:7}')


def preprocess(command, *options):
    return subprocess.run(['g++', '-std=c++20', *command, *options], capture_output=True, text=True).stdout


def print_headers(checkout):
    """Units are .cpp files, whether or not they are compiled together."""
    includes = [f'-I{checkout}/include', '-I/usr/include/eigen3', f'-I{checkout}/kernels', f'-I{checkout}/kernels/cpu']
    mpi = subprocess.run(['mpicc', '-showme:compile'], capture_output=True, text=True).stdout.split()
    units = [path for path in sources_of(checkout, 'src') if path.suffix == '.cpp']

    def headers_of(unit):
        layer = checkout / 'src' / unit.relative_to(checkout / 'src').parts[0]
        text = preprocess([*includes, *mpi, f'-I{layer}', '-M', '-MG', str(unit)])
        return set(text.replace('\\\n', ' ').split()[2:])

    with concurrent.futures.ThreadPoolExecutor() as pool:
        included = collections.Counter(header for found in pool.map(headers_of, units) for header in found)
        named = set()
        for path in sources_of(checkout, 'src', 'include'):
            named |= set(re.findall(r'^#include [<"]([^>"]+)[>"]', path.read_text(), flags=re.M))
        # Those that sources name, by the file that it is.
        found = {header: next((full for full in included if full.endswith('/' + header)), None) for header in named}
        found = {header: full for header, full in found.items() if full and '/detail/' not in header}

        def lines_of(header):
            return preprocess([*includes, *mpi, '-E', '-P', '-x', 'c++', found[header]]).count('\n')

        lines = dict(zip(found, pool.map(lines_of, found)))
    order = sorted(found, key=lambda header: -lines[header] * included[found[header]])
    print(f'{"header":40} {"lines":>8} {"of " + str(len(units)) + " units":>14} {"product":>12}')
    for header in order[:10]:
        units_with = included[found[header]]
        print(f'{header:40} {lines[header]:8} {units_with:14} {lines[header] * units_with:12}')


def timed(what, command, checkout):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    code = subprocess.run(command, cwd=checkout, stdout=subprocess.DEVNULL).returncode
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    ended = '' if code == 0 else f'  (exit code {code}: {shlex.join(command)})'
    print(f'{what:44} {used:8.1f} s of processors {wall:8.1f} s{ended}', flush=True)


def configure(checkout):
    subprocess.run(['cmake', '--fresh', '-S', '.', '-B', 'build/figures', '-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Release',
                    '-DCMAKE_CXX_COMPILER_LAUNCHER=', '--log-level=WARNING'], cwd=checkout, check=True,
                   stdout=subprocess.DEVNULL)


def print_build(checkout):
    configure(checkout)
    jobs = str(os.cpu_count())
    build = ['ninja', '-C', 'build/figures', '-j', jobs]
    subprocess.run([*build, '-t', 'clean'], cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    timed('clean build of the program', [*build, 'dstune-mpi'], checkout)
    edited = next((checkout / name for name in EDITED if (checkout / name).exists()), None)
    if edited:
        edited.touch()
        timed(f'after an edit of {edited.relative_to(checkout)}', [*build, 'dstune-mpi'], checkout)


def print_tests(checkout):
    configure(checkout)
    jobs = str(os.cpu_count())
    timed('building the rest of `all`', ['ninja', '-C', 'build/figures', '-j', jobs, 'all'], checkout)
    labels = (checkout / 'scripts/cmake/DstuneTests.cmake').read_text()
    default = ['-LE', '^long$'] if 'long_tests' in labels else []
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1',
                      OMPI_MCA_rmaps_base_oversubscribe='1', OMPI_MCA_mpi_yield_when_idle='1',
                      OMPI_MCA_hwloc_base_binding_policy='none')
    timed('running the default tests', ['ctest', '--test-dir', 'build/figures', '-j', jobs, *default], checkout)


FIGURES = {'lines': print_lines, 'headers': print_headers, 'build': print_build, 'tests': print_tests}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('words', nargs='+', metavar='WORD')
    words = parser.parse_args().words
    checkout = HERE if words[0] in FIGURES else pathlib.Path(words.pop(0)).resolve()
    unknown = [word for word in words if word not in FIGURES]
    if unknown or not words:
        parser.error(f'not one of {", ".join(FIGURES)}: {", ".join(unknown) or "nothing"}')
    for word in words:
        print(f'-- {word} of {checkout}', flush=True)
        FIGURES[word](checkout)


if __name__ == '__main__':
    main()
