#!/usr/bin/env python3
"""What members that never run cost: memory of rank 0 and bytes of the journal.

  mpi_tests/bench/members.py [--program build/release/dstune-mpi] [--members 1000 10000 100000]

Each job races over a space of so many members on two ranks and runs ten of them. The model has two small
layers. Of the members some are twins of others, some do not fit, the rest fits.
Prints a row for each size: members, those that ran, seconds, the most memory that rank 0 and the other rank
held at once (as the kernel says it: ru_maxrss), that without what ten members take, for each member, and
bytes of the journal, results.csv and report.html.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = {'family': 'gpt2', 'hidden_size': 64, 'num_layers': 2, 'num_heads': 2, 'intermediate_size': 256,
         'vocab_size': 256, 'max_positions': 64}
MIB = 1024 * 1024
ENVIRONMENT = {
    'OMP_NUM_THREADS': '1', 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
    'OMPI_MCA_rmaps_base_oversubscribe': '1', 'OMPI_MCA_mpi_yield_when_idle': '1',
    'PRTE_ALLOW_RUN_AS_ROOT': '1', 'PRTE_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
    'PRTE_MCA_rmaps_default_mapping_policy': ':oversubscribe',
}


def space_of(members):
    """A product of so many, of which every fifth micro-batch needs more than there is."""
    sizes = {10: (1, 1, 1), 1000: (10, 5, 1), 10_000: (50, 10, 1), 100_000: (100, 25, 2),
             1_000_000: (250, 50, 4)}[members]
    buckets, clips, steps = sizes
    stages = [0, 1, 2, 3] if members > 10 else [1, 2]
    return {
        'dstune': {'model': MODEL, 'sequence_length': 64, 'resources': {'num_gpus': 2}, 'target': 'self',
                   'device_memory': '64MiB', 'trial_budget_s': 0.01},
        'autotuning': {'enabled': True, 'tuner_type': 'race', 'tuner_num_trials': 10},
        'train_micro_batch_size_per_gpu': [1, 2, 4, 8, 4096],
        'gradient_accumulation_steps': list(range(1, steps + 1)),
        'gradient_clipping': [0.5 + 0.01 * clip for clip in range(clips)],
        'zero_optimization': {'stage': stages,
                              'reduce_bucket_size': [1_000_000 + 1000 * bucket for bucket in range(buckets)]},
    }


def as_rank(command):
    """Runs the program and leaves the most memory that it held in a file."""
    code = subprocess.run(command, check=False).returncode
    rank = os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK', '0'))
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    pathlib.Path(os.environ['DSTUNE_BENCH_FOLDER'], f'memory.{rank}').write_text(str(most), encoding='ascii')
    return code


def run(program, members):
    space = space_of(members)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / 'space.json').write_text(json.dumps(space), encoding='utf-8')
        command = ['mpirun', '-np', '2', '--bind-to', 'none', sys.executable, __file__, '--as-rank', program,
                   '--no-progress', '--quiet', '--format', 'json', '--results-dir', str(path / 'results'),
                   '--exps-dir', str(path / 'exps'), str(path / 'space.json')]
        began = time.monotonic()
        job = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                             env=os.environ | ENVIRONMENT | {'DSTUNE_BENCH_FOLDER': folder})
        seconds = time.monotonic() - began
        memory = [int((path / f'memory.{rank}').read_text(encoding='ascii')) for rank in range(2)]
        files = [(path / 'results' / name).stat().st_size
                 for name in ('journal.jsonl', 'results.csv', 'report.html')]
        counts = json.loads(job.stdout.splitlines()[-1])['counts']
        fits = sum(counts.values()) - counts['pruned'] - counts['infeasible']
        return seconds, fits, memory, files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default=str(CHECKOUT / 'build/release/dstune-mpi'))
    parser.add_argument('--members', type=int, nargs='+', default=[1000, 10_000, 100_000])
    arguments = parser.parse_args()
    _, _, (least, _), _ = run(arguments.program, 10)
    print('| members | run | seconds | rank 0, MiB | bytes a member | other rank, MiB | journal, MB '
          '| results.csv, MB | report.html, MB |')
    print('| --- ' * 9 + '|')
    for members in arguments.members:
        seconds, _, memory, files = result = run(arguments.program, members)
        sizes = ' | '.join(f'{size / 1e6:.1f}' for size in files)
        print(f'| {members:,} | {result[1]:,} | {seconds:.1f} | {memory[0] / MIB:.0f} '
              f'| {(memory[0] - least) / members:,.0f} | {memory[1] / MIB:.0f} | {sizes} |', flush=True)


if __name__ == '__main__':
    if sys.argv[1:2] == ['--as-rank']:
        sys.exit(as_rank(sys.argv[2:]))
    main()
