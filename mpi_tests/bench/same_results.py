#!/usr/bin/env python3
"""Runs ten spaces with two builds of dstune-mpi and compares all files that they write.

  mpi_tests/bench/same_results.py BEFORE AFTER [--only NAME] [--keep FOLDER]

BEFORE and AFTER are the two programs (build/release/dstune-mpi of two checkouts). Each runs every
space in a folder of its own, on two ranks, one group at a time. The exit code is 1 where a file
differs. A program compared with itself shows what is compared apart: nothing may differ then.

Two kinds of spaces:
  exact     replay, whose times are given. Both programs begin with the same journal, which holds one profile
            of the machine. Compared are all first runs, in their order, with all that was measured and
            predicted but CLOCKS; the plan; and files as below. Which finalists are measured again, and how
            often, depends on when runs end: that and what follows from it is not compared.
  measured  transformer and plugin, whose times differ from run to run. Compared is which files there are;
            of each experiment the configuration, the status, losses and memory (all of metrics.json but
            MEASURED); the journal's records by experiment; and the plan, without predicted times.
"""
import argparse
import csv
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent

# Compared apart everywhere: clocks, what follows from them, host, process, place of the program.
CLOCKS = {
    'time', 'started_at', 'finished_at', 'overhead_s', 'command', 'compiler', 'clocks', 'pid', 'process',
    'memory_bytes', 'device_memory_bytes', 'host_memory_bytes', 'process_memory_bytes', 'tuning_gpu_hours',
    'energy_j', 'joules_per_sample', 'disturbance', 'bytes', 'crc32', 'hosts', 'host', 'variables', 'version',
    'predicted_process_memory_bytes', 'elapsed_s',
}
# Compared apart where times are measured: times, what is made of them, how many steps there were.
MEASURED = CLOCKS | {
    'fwd', 'bwd', 'step', 'latency', 'FLOPS_per_gpu', 'throughput', 'target_throughput', 'ci_low', 'ci_high',
    'step_times_s', 'warmup_steps', 'rank_forward_s', 'flags', 'value', 'target', 'profile', 'attempt', 'costs_s',
    'alone', 'skipped_steps', 'time_s', 'duration_s', 'expected_duration_s', 'step_time_s', 'seconds',
    'throughput_low', 'throughput_high', 'assumptions',
}
REPLAYED = json.loads(re.sub(r'^//.*$', '', (HERE / 'spaces/gpt2-2ranks.json').read_text(), flags=re.M))
BERT = json.loads(re.sub(r'^//.*$', '', (HERE / 'spaces/bert-2ranks.json').read_text(), flags=re.M))
TINY = {'family': 'gpt2', 'hidden_size': 32, 'num_layers': 2, 'num_heads': 2, 'intermediate_size': 128,
        'vocab_size': 64, 'max_positions': 64}


def replayed(space, table):
    """The recorded space as a replay, with our table or the one that is there."""
    space = json.loads(json.dumps(space))
    if isinstance(table, str):
        table = json.loads((HERE / 'tables' / table).read_text())
    space['dstune']['workload'] = {'type': 'replay', 'table': 'table.json'}
    space['dstune']['resources'] = {'num_gpus': 2}
    return space, table


def synthetic(tuner, micro_batches, stages):
    return {
        'dstune': {'resources': {'num_gpus': 2}, 'trial_budget_s': 0.2,
                   'workload': {'type': 'synthetic', 'step_time_s': 0.0}},
        'autotuning': {'enabled': True, 'tuner_type': tuner},
        'train_micro_batch_size_per_gpu': micro_batches, 'gradient_accumulation_steps': 1,
        'zero_optimization': {'stage': stages},
    }


def transformer(**more):
    space = {
        'dstune': {'model': TINY, 'sequence_length': 32, 'resources': {'num_gpus': 2}, 'trial_budget_s': 0.05},
        'autotuning': {'enabled': True, 'tuner_type': 'gridsearch'},
        'train_micro_batch_size_per_gpu': [1, 2], 'gradient_accumulation_steps': 1,
        'optimizer': {'type': 'AdamW', 'params': {'lr': 0.005}}, 'zero_optimization': {'stage': [0, 1, 2, 3]},
    }
    space.update(more)
    return space


def failing_table():
    """Some run out of memory, some are missing, one is slow."""
    table = json.loads((HERE / 'tables/gpt2-2ranks.json').read_text())
    names = sorted(table)
    for name in names[::5]:
        table[name] = {'status': 'out_of_memory'}
    for name in names[3::7]:
        del table[name]
    return table


def plugin_space(library):
    return {
        'dstune': {'workload': {'type': 'plugin', 'library': library, 'parameters': 20000},
                   'resources': {'num_gpus': 2}, 'trial_budget_s': 0.05},
        'autotuning': {'enabled': True, 'tuner_type': 'gridsearch'},
        'train_micro_batch_size_per_gpu': [1, 4], 'gradient_accumulation_steps': 2,
        'zero_optimization': {'stage': [0, 1, 2, 3]},
    }


def spaces(library):
    """name -> (kind, space, table or None, options)"""
    exact, measured = 'exact', 'measured'
    two_ranks, table = replayed(REPLAYED, 'gpt2-2ranks.json')
    bert, bert_table = replayed(BERT, 'bert-2ranks.json')
    return {
        'replay-gridsearch': (exact, two_ranks, table, ['--tuner', 'gridsearch']),
        'replay-random': (exact, two_ranks, table, ['--tuner', 'random', '--seed', '3', '--num-trials', '30']),
        'replay-model_based': (exact, two_ranks, table, ['--tuner', 'model_based', '--seed', '3']),
        'replay-race': (exact, two_ranks, table, ['--tuner', 'race', '--seed', '1']),
        'replay-race-failures': (exact, two_ranks, failing_table(), ['--tuner', 'race', '--seed', '2']),
        'replay-latency': (exact, bert, bert_table, ['--tuner', 'race', '--metric', 'latency']),
        'synthetic': (measured, synthetic('gridsearch', [1, 2, 4], [0, 1]), None, []),
        'transformer': (measured, transformer(), None, []),
        'transformer-offload': (measured, transformer(
            bf16={'enabled': True}, gradient_accumulation_steps=[1, 2], train_micro_batch_size_per_gpu=[1],
            zero_optimization={'stage': [2, 3], 'offload_optimizer': [None, {'device': 'cpu'}]}), None, []),
        'plugin': (measured, plugin_space(library), None, []),
    }


def build_plugin(folder):
    library = folder / 'libzero_sgd.so'
    subprocess.run(['cc', '-std=c99', '-O2', '-shared', '-fPIC', f'-I{CHECKOUT}/include',
                    f'{CHECKOUT}/scripts/plugin/zero_sgd.c', '-o', str(library), '-lm'], check=True)
    return str(library)


def run(program, folder, options, environment):
    command = ['mpirun', '-np', '2', program, 'space.json', '--no-progress', *options]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    (folder / 'stdout.txt').write_text(ended.stdout)
    (folder / 'stderr.txt').write_text(ended.stderr)
    return ended.returncode


def journal_of(path):
    return [json.loads(line)['event'] for line in path.read_text().splitlines()]


def first_lines(path):
    """The journal's lines up to and with the profile of the machine."""
    kept = []
    for line in path.read_text().splitlines(keepends=True):
        kept.append(line)
        if json.loads(line)['event']['kind'] == 'profile':
            return ''.join(kept)
    return ''


def without(value, left_out):
    if isinstance(value, dict):
        # A record's differences name what they change by its pointer.
        return {key: without(inner, left_out) for key, inner in value.items()
                if key.rpartition('/')[2] not in left_out}
    if isinstance(value, list):
        return [without(inner, left_out) for inner in value]
    return value


def rows_of(text, left_out):
    return [{key: cell for key, cell in row.items() if key not in left_out} for row in csv.DictReader(io.StringIO(text))]


# The manifest has hashes of what is compared itself, in the order in which it was written.
NOT_COMPARED = {'lock', '.dstune-manifest.jsonl'}


# Of the winner, which measured times decide: there is one, and which is not compared.
OF_THE_WINNER = {'memory.svg', 'memory.txt'}  # the first is an earlier release's
COLUMNS = ['name', 'status', 'reason', 'num_gpus', 'num_nodes', 'zero_stage', 'micro_batch', 'accumulation_steps',
           'train_batch_size', 'recompute', 'metric', 'peak_memory_bytes', 'world_ranks', 'predicted_peak_memory_bytes',
           'predicted_target_memory_bytes', 'changed_numerics']


def shortened(value):
    """Losses of the steps that every run has."""
    if isinstance(value, dict):
        return {key: inner[:5] if key == 'losses' else shortened(inner) for key, inner in value.items()}
    return [shortened(inner) for inner in value] if isinstance(value, list) else value


def files_of(folder, is_exact):
    found = {'files': []}
    left_out = CLOCKS if is_exact else MEASURED
    for path in sorted(folder.rglob('*')):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name in OF_THE_WINNER or path.name in NOT_COMPARED:
            continue
        found['files'].append(name)
        text = path.read_text().replace(str(folder), 'FOLDER')
        if path.name == 'journal.jsonl':
            events = [shortened(without(event, left_out)) for event in journal_of(path)]
            lines = [json.dumps(event) for event in events if not event['kind'].startswith('repeat')]
            found[name] = lines if is_exact else sorted(lines)
        elif path.name == 'results.csv':
            found[name] = [{key: row[key] for key in COLUMNS} for row in rows_of(text, set())]
        elif path.name == 'metrics.json' or path.name in ('exp.json', 'ds_config.json') or 'autotuning_exps' in name:
            found[name] = shortened(without(json.loads(text), MEASURED))
        elif path.name in ('validation.json', 'environment.json'):
            found[name] = sorted(json.loads(text))
        elif path.name == 'plan.json':
            found[name] = without(json.loads(text), MEASURED)
    return found


def differences(before, after, place=''):
    if type(before) is not type(after):
        return [f'{place}: {before!r} is {after!r}'[:300]]
    if isinstance(before, dict):
        found = []
        if list(before) != list(after):
            found.append(f'{place}: members {sorted(set(before) ^ set(after)) or "in another order"}')
        for key in before:
            if key in after:
                found += differences(before[key], after[key], f'{place}/{key}')
        return found
    if isinstance(before, list):
        found = [] if len(before) == len(after) else [f'{place}: {len(before)} entries are {len(after)}']
        for index, (one, other) in enumerate(zip(before, after)):
            found += differences(one, other, f'{place}/{index}')
        return found
    if isinstance(before, str) and '\n' in before:
        return differences(before.splitlines(), after.splitlines(), place)
    return [] if before == after else [f'{place}: {before!r} is {after!r}'[:400]]


def compare(name, kind, space, table, options, programs, folder, environment):
    found = []
    start = manifest = ''
    for which, program in zip(('before', 'after'), programs):
        place = folder / name / which
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / 'space.json').write_text(json.dumps(space, indent=1))
        if table is not None:
            (place / 'table.json').write_text(json.dumps(table))
        if kind == 'exact':
            results = place / 'autotuning_results'
            if which == 'before':
                run(program, place, options, environment)
                start = first_lines(results / 'journal.jsonl')
                manifest = (results / '.dstune-manifest.jsonl').read_text()
                shutil.rmtree(results)
                shutil.rmtree(place / 'autotuning_exps', ignore_errors=True)
            results.mkdir()
            (results / 'journal.jsonl').write_text(start)
            # By it the journal is the program's own.
            (results / '.dstune-manifest.jsonl').write_text(manifest)
        code = run(program, place, options, environment)
        plan = subprocess.run([program, '--dry-run', '--format', 'json', 'space.json', *options], cwd=place,
                              env=environment, capture_output=True, text=True, timeout=300)
        # What was refused says why.
        (place / 'plan.json').write_text(plan.stdout or json.dumps({'refused': plan.stderr}))
        files = files_of(place, kind == 'exact')
        files['exit code'] = [code, plan.returncode]
        found.append(files)
    return differences(*found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('programs', nargs=2, metavar=('BEFORE', 'AFTER'))
    parser.add_argument('--only', help='this space alone')
    parser.add_argument('--keep', help='leave what was written in this folder')
    arguments = parser.parse_args()
    programs = [str(pathlib.Path(program).resolve()) for program in arguments.programs]
    environment = dict(os.environ, OMP_NUM_THREADS='1', OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1',
                       OMPI_MCA_rmaps_base_oversubscribe='1', OMPI_MCA_mpi_yield_when_idle='1',
                       OMPI_MCA_hwloc_base_binding_policy='none')
    different = 0
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(arguments.keep or made).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name, (kind, *what) in spaces(build_plugin(folder)).items():
            if arguments.only not in (None, name):
                continue
            found = compare(name, kind, *what, programs, folder, environment)
            different += bool(found)
            print(f'{name} ({kind}): {"the same" if not found else f"{len(found)} differences"}', flush=True)
            for line in found[:20]:
                print('  ' + line)
    sys.exit(1 if different else 0)


if __name__ == '__main__':
    main()
