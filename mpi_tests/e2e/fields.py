#!/usr/bin/env python3
"""fields.py PROGRAM: whether the schemas of docs/ describe the files that a job writes.

PROGRAM runs small jobs on one rank, without a launcher, in a temporary folder: one that ends, others that resume it,
and recorded ones in which members fail, times are fitted, and results of DeepSpeed are imported. All that they write
and print is held against docs/results.schema.json, report.schema.json and plan.schema.json, and so are recorded
journals and profiles. The exit code is 1 where something differs, or where a file has no schema.
"""
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 300

TYPES = {
    'integer': lambda value: isinstance(value, int) and not isinstance(value, bool),
    'number': lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    'string': lambda value: isinstance(value, str),
    'boolean': lambda value: isinstance(value, bool),
    'object': lambda value: isinstance(value, dict),
    'array': lambda value: isinstance(value, list),
    'null': lambda value: value is None,
}
TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z')
WORDS = ('$schema', 'title', 'description', '$defs', '$ref', 'type', 'format', 'enum', 'anyOf', 'minimum', 'items',
         'minItems', 'maxItems', 'properties', 'required', 'additionalProperties')


class Schema:
    """The keywords that the schemas here use; any other is a fault of theirs."""

    def __init__(self, name):
        self.whole = json.loads((ROOT / 'docs' / name).read_text())

    def of(self, name):
        return self.whole['$defs'][name]

    def problems(self, rule, value, at=''):
        unknown = [word for word in rule if word not in WORDS]
        if unknown:
            yield f'{at}: the schema has an unknown keyword {unknown[0]}'
        if '$ref' in rule:
            yield from self.problems(self.of(rule['$ref'].removeprefix('#/$defs/')), value, at)
        types = rule.get('type', [])
        types = [types] if isinstance(types, str) else types
        if types and not any(TYPES[one](value) for one in types):
            yield f'{at}: is no {" or ".join(types)}: {json.dumps(value)[:80]}'
            return
        if 'enum' in rule and value not in rule['enum']:
            yield f'{at}: {json.dumps(value)[:80]} is none of {rule["enum"]}'
        if rule.get('format') == 'date-time' and value is not None and not TIME.fullmatch(value):
            yield f'{at}: is no time: {value}'
        if 'minimum' in rule and TYPES['number'](value) and value < rule['minimum']:
            yield f'{at}: {value} is below {rule["minimum"]}'
        if 'anyOf' in rule:
            yield from self.problems_of_forms(rule['anyOf'], value, at)
        if isinstance(value, list):
            if not rule.get('minItems', 0) <= len(value) <= rule.get('maxItems', len(value)):
                yield f'{at}: has {len(value)} elements'
            for place, inside in enumerate(value):
                yield from self.problems(rule.get('items', {}), inside, f'{at}/{place}')
        if isinstance(value, dict):
            yield from self.problems_of_members(rule, value, at)

    def problems_of_forms(self, forms, value, at):
        tries = [list(self.problems(form, value, at)) for form in forms]
        if all(tries):
            # The form that fits best: what another one says does not help.
            yield from min(tries, key=lambda problems: (sum('is none of' in one for one in problems), len(problems)))

    def problems_of_members(self, rule, value, at):
        known = rule.get('properties', {})
        yield from (f'{at}: lacks {name}' for name in rule.get('required', []) if name not in value)
        others = rule.get('additionalProperties', {})
        for name, inside in value.items():
            if name in known:
                yield from self.problems(known[name], inside, f'{at}/{name}')
            elif others is False:
                yield f'{at}: has an unknown key {name}'
            else:
                yield from self.problems(others, inside, f'{at}/{name}')


class Job:
    """A program in a folder, and what is wrong with its files."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.results = folder / 'autotuning_results'
        self.faults, self.seen = [], set()
        self.schemas = {name: Schema(f'{name}.schema.json') for name in ('results', 'report', 'plan')}

    def run(self, *arguments, exit_code=0):
        """What it prints. `exit_code`: one that is expected."""
        ended = subprocess.run([self.program, *arguments], cwd=self.folder, capture_output=True, text=True,
                               timeout=TIMEOUT_S, check=False)
        if ended.returncode != exit_code:
            raise SystemExit(f'{" ".join(arguments)} ended with {ended.returncode}, not {exit_code}:\n{ended.stderr}')
        return ended.stdout

    def write(self, name, value):
        (self.folder / name).write_text(json.dumps(value))

    def hold(self, what, name, value, schema='results'):
        """Holds a value against a definition of a schema, or against the whole of one (`name` None)."""
        self.seen.add(name or schema)
        rules = self.schemas[schema]
        for problem in rules.problems(rules.of(name) if name else rules.whole, value):
            self.faults.append(f'{what}{problem}')

    def hold_lines(self, path, name):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            value = json.loads(line)
            self.hold(f'{path.name}:{number} ', name, value)
            if name == 'journal.jsonl':
                self.seen.add(value['event']['kind'])

    def hold_table(self, path):
        with path.open(newline='') as file:
            rows = list(csv.DictReader(file))
        columns = self.schemas['results'].of('results.csv')['properties']
        numbers = {name for name, rule in columns.items() if 'string' not in rule['type']}
        # Others are searched keys.
        searched = {*columns, *json.loads((self.folder / 'space.json').read_text())}
        self.faults += [f'{path.name}: has an unknown column {name}' for name in rows[0]
                        if '.' not in name and name not in searched]
        for number, row in enumerate(rows, 2):
            value = {name: (json.loads(cell) if cell else None) if name in numbers else cell
                     for name, cell in row.items()}
            self.hold(f'{path.name}:{number} ', 'results.csv', value)

    def hold_files(self, state='ended'):
        """All files of both folders, and what `status` says of them."""
        in_words = {'cmd_optimal.txt', 'summary.txt', 'memory.txt', 'traceback.txt', 'report.html', 'verify.sbatch',
                    'verify.pbs'}
        of_deepspeed = {'ds_config.json', 'ds_config_optimal.json'}
        for path in sorted(path for path in self.folder.glob('autotuning_*/**/*') if path.is_file()):
            if path.name in in_words | of_deepspeed or path.parent.parent.name == 'verify':
                continue
            if path.parent.name == 'autotuning_exps' and path.suffix == '.json':
                self.hold(f'{path.name} ', 'exps_dir', json.loads(path.read_text()))
            elif path.name == '.dstune-manifest.jsonl':
                self.hold_lines(path, 'manifest')
            elif path.name == 'journal.jsonl':
                self.hold_lines(path, 'journal.jsonl')
            elif path.name == 'results.csv':
                self.hold_table(path)
            elif path.name == 'report.json':
                self.hold(f'{path.name} ', None, json.loads(path.read_text()), 'report')
            elif path.name in self.schemas['results'].whole['$defs']:
                self.hold(f'{path.relative_to(self.folder)} ', path.name, json.loads(path.read_text()))
            else:
                self.faults.append(f'{path.relative_to(self.folder)}: has no schema')
        status = json.loads(self.run('status', 'autotuning_results', '--format', 'json'))
        self.hold('status ', 'status_output', status)
        if status['life'] != state:
            self.faults.append(f'status: the job is {status["life"]}')

    def tune(self, *arguments, exit_code=0):
        printed = self.run('--quiet', '--format', 'json', *arguments, exit_code=exit_code)
        self.hold('what the job prints ', 'run_output', json.loads(printed))
        self.hold_files()

    def plan(self, *arguments, exit_code=0):
        self.hold('plan ', None, json.loads(self.run('plan', '--format', 'json', *arguments, exit_code=exit_code)),
                  'plan')

    def check(self, *arguments, form):
        self.hold('check ', form, json.loads(self.run('check', '--quiet', '--format', 'json', *arguments)))


def space(**others):
    """Two members, which take a fraction of a second each."""
    return {
        'dstune': {'model': {'hf_config': str(ROOT / 'scripts/spaces/gpt2-tiny/config.json')}, 'sequence_length': 16,
                   'resources': {'num_gpus': 1}, 'trial_budget_s': 0.2, **others.pop('dstune', {})},
        'train_micro_batch_size_per_gpu': [1], 'gradient_accumulation_steps': 1,
        'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-4}},
        'zero_optimization': {'stage': [0, 3]}, **others}


def one_that_ends(job):
    job.write('space.json', space())
    job.check('--backend', 'cpu', form='check_output')
    job.check('space.json', form='check_files_output')
    job.plan('space.json')
    job.plan('space.json', '--device', 'a100-80gb', '--nodes', '2', '--gpus-per-node', '8')
    job.tune('--profile-out', 'profile.json', 'space.json')
    job.hold('profile.json ', 'device_profile', json.loads((job.folder / 'profile.json').read_text()))
    # The same again, and with more members.
    job.tune('space.json')
    job.write('space.json', space(dstune={'training_command': 'train.py --deepspeed_config $CONFIG'},
                                  zero_optimization={'stage': [0, 2, 3], 'overlap_comm': [True, False]}))
    job.tune('space.json')


def replay(job, table, **others):
    job.write('table.json', table)
    job.write('space.json', space(dstune={'workload': {'type': 'replay', 'table': 'table.json'},
                                          'training_command': 'train.py --deepspeed_config $CONFIG'}, **others))


def one_of_failures(job):
    table = {'z0_gas1_tmbspg1': {'step_time_s': 0.01}, 'z1_gas1_tmbspg1': {'status': 'out_of_memory'}}
    # A name that the table lacks fails. Batches of two samples are pruned.
    replay(job, table, zero_optimization={'stage': [0, 1, 2]}, train_micro_batch_size_per_gpu=[1, 2],
           train_batch_size=1)
    job.plan('space.json')
    job.tune('--tuner', 'gridsearch', 'space.json')
    job.run('--quiet', '--overwrite', 'missing.json', exit_code=3)
    job.hold_files()


def one_with_results_of_deepspeed(job):
    sizes = (1, 2, 3, 4)
    replay(job, {f'z0_gas1_tmbspg{size}': {'step_time_s': 0.1 * size * size} for size in sizes},
           train_micro_batch_size_per_gpu=list(sizes), zero_optimization={'stage': 0})
    config = {'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': 1, 'zero_optimization': {'stage': 0},
              'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-4}}}
    (job.folder / 'own.log').write_text(
        '[INFO] [config.py:1013:print]   world_size ................... 1\n'
        f'[INFO] [config.py:999:print_user_config]   json = {json.dumps(config, indent=4)}\n' +
        6 * '[Rank 0] time (ms) | fwd: 1000.00 | bwd: 2000.00 | step: 200.00\n')
    job.tune('--calibrate', 'own.log', 'space.json')
    for size in sizes[:2]:
        name = f'z0_gas1_tmbspg{size}'
        folder = job.results / 'verify' / name
        folder.mkdir(parents=True)
        for file in ('exp.json', 'ds_config.json'):
            (folder / file).write_text((job.results / name / file).read_text())
        (folder / 'metrics.json').write_text(json.dumps({
            'fwd': 1.0, 'bwd': 2.0, 'step': 1.0, 'latency': 4.0, 'FLOPS_per_gpu': 1e9, 'throughput': 10.0 * size,
            'rank': 0}))
        (folder / 'status.json').write_text(json.dumps({'status': 'ok', 'exit_code': 0}))
    job.tune('--import', 'autotuning_results/verify', 'space.json')
    optimal = json.loads((job.results / 'optimal.json').read_text())
    if optimal['label'] != 'verified' or not optimal['verified']:
        job.faults.append('nothing was imported')


def recorded_files(job):
    """Those of the checkout: of earlier releases, too."""
    journals = [*ROOT.glob('mpi_tests/e2e/journals/*/journal.jsonl')]
    for path in journals:
        # A job that was killed leaves a line that is no whole one.
        for line in path.read_text().split('\n')[:-1]:
            event = json.loads(line)
            if event['event']['kind'] != 'planned':
                job.seen.add(event['event']['kind'])
                job.hold(f'{path.parent.name} ', 'journal.jsonl', event)
    profiles = [*ROOT.glob('mpi_tests/bench/profiles/*.json')]
    for path in profiles:
        job.hold(f'{path.name} ', 'device_profile', json.loads(path.read_text()))
    devices = json.loads((ROOT / 'src/core/devices.json').read_text())
    for kind in ('device', 'node', 'network'):
        for one in devices[f'{kind}s']:
            job.hold(f'{one["name"]} ', kind, one)
    constants = json.loads((ROOT / 'src/core/target_constants.json').read_text())
    for kind in ('cpu', 'gpu'):
        job.hold(f'constants of {kind} ', 'constants', constants[kind])
    if not journals or not profiles:
        job.faults.append('the checkout has no journals or no profiles')


def main(program):
    faults, seen = [], set()
    for each in (one_that_ends, one_of_failures, one_with_results_of_deepspeed, recorded_files):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(program, pathlib.Path(folder))
            each(job)
            faults += [f'{each.__name__}: {fault}' for fault in job.faults]
            seen |= job.seen
    expected = {'metrics.json', 'exp.json', 'exps_dir', 'optimal.json', 'exit_status.json', 'status.json',
                'validation.json', 'environment.json', 'manifest', 'journal.jsonl', 'device_profile', 'results.csv',
                'run_output', 'status_output', 'check_output', 'check_files_output', 'report', 'plan', 'job_started',
                'base', 'profile', 'started', 'finished', 'repeat_started', 'repeated', 'job_finished', 'not_planned',
                'verified', 'lost', 'device', 'node', 'network', 'constants'}
    faults += [f'{name}: nothing was held against it' for name in sorted(expected - seen)]
    print('\n'.join(dict.fromkeys(faults)) or f'{len(seen)} kinds of files and events are as described')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve())))
