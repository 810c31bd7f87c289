#!/usr/bin/env python3
"""run_pages.py [--program FILE] [--long|--all] [--keep FOLDER] PAGE...: does what a page tells its reader to do.

Fenced blocks say what they are, in the words behind the fence:

  console     `$ ` in front of commands; the lines below them are what they print
  sh          commands whose output is not shown
  LANGUAGE file=NAME     a file that the page's later commands find

Commands of a page run in its order, in one folder that also has `scripts`, `hostfiles`, `docs`, `mpi_tests` and
`build` of the checkout; `dstune-mpi` is the program that was built. A line `cd FOLDER` holds for the rest of the page.
What a command prints is compared with the page, figures and blanks aside: `…` stands for any text, and a line of it
for any lines. Behind the language:

  exit=N      the code that the block's last command ends with
  run=no:WHY  not run here: gpu, batch, root, network, build, cluster
  run=long    with --long or --all alone; later commands of the page that need it are marked, too
  run=engine  the same; skipped where DSTUNE_ENGINE_PYTHON names no interpreter with PyTorch and DeepSpeed

Options of every dstune-mpi command are parsed, of those that are not run and of code spans, too. Of other commands that
are not run the checkout's files, the presets, the scripts' options and CMake's variables have to exist. A block that
names no language has no commands. The exit code is 1 where a page is wrong, 77 where nothing of it could be run.
"""
import argparse
import dataclasses
import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINKED = ('scripts', 'hostfiles', 'docs', 'include', 'mpi_tests', 'src')
REASONS = ('gpu', 'batch', 'root', 'network', 'build', 'cluster')
LANGUAGES = ('console', 'sh', 'json', 'python', 'yaml', 'text', 'cpp', 'cmake', 'csv', 'diff', 'hjson')
LIMIT_S = 600
FIGURE = re.compile(r'[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?', re.IGNORECASE)
# In front of the program: launchers with their options, and variables.
PROGRAM = re.compile(r'(?:^|[\s/;&|(])dstune-mpi(?=\s|$)')


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    attributes: dict
    lines: list

    @property
    def place(self):
        return f'{self.page}:{self.line}'

    @property
    def is_commands(self):
        return self.language in ('console', 'sh')

    @property
    def run(self):
        return self.attributes.get('run', '')

    def commands(self):
        """(command, the lines that it prints or None), a line each."""
        made, goes_on = [], False
        for line in self.lines:
            if self.language == 'sh':
                if goes_on:
                    made[-1][0] += '\n' + line
                elif line.strip() and not line.lstrip().startswith('#'):
                    made.append([line, None])
                goes_on = line.endswith('\\')
            elif line.startswith('$ '):
                made.append([line[2:], []])
                goes_on = line.endswith('\\')
            elif goes_on:
                made[-1][0] += '\n' + line.removeprefix('> ')
                goes_on = line.endswith('\\')
            elif made:
                made[-1][1].append(line)
        return [(command, printed) for command, printed in made]


def blocks_of(path):
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    found, fence, current = [], '', None
    for number, line in enumerate(path.read_text().split('\n'), 1):
        begins = re.match(r'^(\s*)(`{3,}|~{3,})\s*(.*)$', line)
        if not fence and begins:
            indent, fence, info = len(begins[1]), begins[2], begins[3].split()
            attributes = dict(word.partition('=')[::2] for word in info[1:])
            current = Block(name, number, info[0] if info else '', attributes, [])
        elif fence and line.strip() == fence:
            found.append(current)
            fence = ''
        elif fence:
            current.lines.append(line[indent:] if not line[:indent].strip() else line)
    return found


def form_faults(block):
    if block.language and block.language not in LANGUAGES:
        yield f'{block.place}: "{block.language}" is none of {", ".join(LANGUAGES)}'
    for key, value in block.attributes.items():
        is_known = key in ('file', 'exit') or key == 'run' and (value in ('long', 'engine') or
                                                               value.removeprefix('no:') in REASONS)
        if not is_known:
            yield f'{block.place}: "{key}={value}" is not known'
    if not block.is_commands and 'file' not in block.attributes:
        for line in block.lines:
            if line.startswith('$ ') or re.match(r'(?:dstune-mpi|mpirun|sbatch|cmake|ctest|scripts/\w+\.sh) ', line):
                yield f'{block.place}: has a command; write console or sh behind the fence'
                break
    if block.language == 'console' and not any(line.startswith('$ ') for line in block.lines):
        yield f'{block.place}: has no "$ " in front of a command'


def program_words(command):
    """Of every call of the program in a command: its words, as a shell splits them."""
    for part in re.split(r'&&|\|\||;|\n(?!\s)|(?<!\|)\|(?!\|)', command.replace('\\\n', ' ')):
        found = PROGRAM.search(part)
        if not found:
            continue
        before = part[:found.start() + 1]
        if re.search(r'\b(?:apt-get|git|ls|man|rm|cd|which|import|from)\b', before):
            continue
        try:
            words = shlex.split(re.sub(r'\s#\s.*$', '', part[found.end():]))
        except ValueError:
            continue
        kept = []
        for word in words:
            if re.match(r'\d?[<>]', word):
                break
            kept.append(word)
        yield kept


@functools.cache
def text_of(*patterns):
    return '\n'.join(path.read_text() for pattern in patterns for path in sorted(ROOT.glob(pattern)))


def unknown_words(command):
    """Of a command that is not run: files, presets, options of scripts and variables of CMake that do not exist."""
    for part in re.split(r'&&|\|\||;|\n(?!\s)|(?<!\|)\|(?!\|)', command.replace('\\\n', ' ')):
        script = ''
        for word in re.sub(r'\s#\s.*$', '', part).split():
            word = word.strip('"\'()$')
            path = word.removeprefix('./')
            if re.match(r'(?:scripts|mpi_tests|hostfiles|docs|include|src|kernels)/[\w./-]*\w$', path):
                if not (ROOT / path).exists():
                    yield f'there is no {path}'
                elif path.endswith(('.sh', '.py')):
                    script = script or path
            elif script and (option := re.match(r'--[a-z][\w-]+', word)):
                if option[0] not in text_of(script):
                    yield f'{script} does not know {option[0]}'
            elif variable := re.match(r'-D(DSTUNE_\w+)', word):
                if variable[1] not in text_of('CMakeLists.txt', '*/CMakeLists.txt', 'scripts/cmake/*.cmake'):
                    yield f'CMake has no {variable[1]}'
        for preset in re.findall(r'--preset[ =](\w+)', part):
            if f'"name": "{preset}"' not in text_of('CMakePresets.json'):
                yield f'there is no preset {preset}'


class Pages:
    def __init__(self, program, kinds):
        self.program = program
        self.kinds = kinds
        self.engine = os.environ.get('DSTUNE_ENGINE_PYTHON', '')
        self.where = ROOT
        self.num_run = 0
        self.parsed = {}

    def option_fault(self, words):
        """The parser's own words, where it refuses these; --help is asked for, so that nothing runs."""
        # A place for others' text: dstune-mpi plan [options] space.json
        words = [word for word in words if not re.match(r'\[|…|\.\.\.', word)]
        key = tuple(words)
        if key not in self.parsed:
            # The words behind `help` are its own; there is nothing to run.
            asked = words if words[:1] == ['help'] else [*words, '--help']
            ended = subprocess.run([self.program, *asked], capture_output=True, text=True, check=False)
            is_usage = ended.returncode == 2
            self.parsed[key] = (ended.stderr.strip().split('\n')[0] if is_usage else '')
        return self.parsed[key]

    def check_options(self, path, blocks):
        for block in blocks:
            if block.is_commands:
                for command, _ in block.commands():
                    if block.attributes.get('exit') == '2':
                        continue
                    for words in program_words(command):
                        if fault := self.option_fault(words):
                            yield f'{block.place}: {" ".join(words)}: {fault}'
                    if block.run.startswith('no:'):
                        yield from (f'{block.place}: {fault}' for fault in unknown_words(command))
        text = re.sub(r'^(`{3,}).*?^\1', lambda found: '\n' * found[0].count('\n'), path.read_text(),
                      flags=re.MULTILINE | re.DOTALL)
        for found in re.finditer(r'`((?:mpirun|dstune-mpi)\s[^`]*)`', text):
            for words in program_words(found[1]):
                if words and re.fullmatch(r'[A-Z.]+', words[-1]):
                    words = words[:-1]
                if any(re.search(r'[…<>|]', word) for word in words):
                    continue
                if fault := self.option_fault(words):
                    line = text.count('\n', 0, found.start()) + 1
                    yield f'{path.relative_to(ROOT)}:{line}: `{found[1]}`: {fault}'

    def environment(self, folder):
        paths = [str(folder / '.bin')]
        if self.engine:
            paths.append(str(pathlib.Path(self.engine).parent))
        environment = {**os.environ, 'LC_ALL': 'C.UTF-8', 'NO_COLOR': '1', 'COLUMNS': '100'}
        environment['PATH'] = os.pathsep.join([*paths, environment['PATH']])
        environment.setdefault('OMP_NUM_THREADS', '1')
        # As root, with more ranks than cores.
        for name in ('OMPI_ALLOW_RUN_AS_ROOT', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM', 'OMPI_MCA_rmaps_base_oversubscribe',
                     'OMPI_MCA_mpi_yield_when_idle', 'PRTE_ALLOW_RUN_AS_ROOT', 'PRTE_ALLOW_RUN_AS_ROOT_CONFIRM'):
            environment.setdefault(name, '1')
        environment.setdefault('OMPI_MCA_hwloc_base_binding_policy', 'none')
        environment.setdefault('PRTE_MCA_rmaps_default_mapping_policy', ':oversubscribe')
        return environment

    def prepare(self, folder):
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        for place in ('.bin', 'build/release'):
            (folder / place).mkdir(parents=True)
            (folder / place / 'dstune-mpi').symlink_to(self.program)

    def is_wanted(self, block):
        if block.run.startswith('no:'):
            return False
        if block.run == 'engine':
            return 'long' in self.kinds and bool(self.engine)
        # A page's files and quick commands lead up to its long ones.
        return 'quick' in self.kinds if block.run == '' else 'long' in self.kinds

    def run_page(self, path, folder):
        self.prepare(folder)
        environment = self.environment(folder)
        self.where = folder
        blocks = blocks_of(path)
        for block in blocks:
            yield from form_faults(block)
        yield from self.check_options(path, blocks)
        needed = [number for number, block in enumerate(blocks) if block.is_commands and self.is_wanted(block)]
        if not needed:
            return
        for block in blocks[:needed[-1] + 1]:
            if 'file' in block.attributes:
                target = folder / block.attributes['file']
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text('\n'.join(block.lines) + '\n')
            if not block.is_commands or not (self.is_wanted(block) or block.run == ''):
                continue
            self.num_run += 1
            yield from self.run_block(block, environment)

    def run_block(self, block, environment):
        commands = block.commands()
        for number, (command, expected) in enumerate(commands):
            if entered := re.fullmatch(r'cd (\S+)', command):
                self.where = (self.where / entered[1]).resolve()
                continue
            code = int(block.attributes.get('exit', 0)) if number + 1 == len(commands) else 0
            try:
                ended = subprocess.run(['bash', '-c', command], cwd=self.where, env=environment, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
                                       stdin=subprocess.DEVNULL, check=False, errors='replace')
            except subprocess.TimeoutExpired:
                yield f'{block.place}: `{command}` takes longer than {LIMIT_S} s'
                return
            if ended.returncode != code:
                yield (f'{block.place}: `{command}` ends with {ended.returncode} instead of {code}:\n'
                       + indented(ended.stdout[-3000:]))
                return
            if expected and not matches(expected, ended.stdout):
                yield f'{block.place}: `{command}` prints other words:\n' + indented(ended.stdout[-6000:])


def indented(text):
    return '\n'.join('    ' + line for line in text.rstrip().split('\n'))


def normal(line):
    return re.sub(r'\s+', ' ', FIGURE.sub('#', line)).strip()


def matches(expected, printed):
    """The page's lines follow each other in what was printed; `…` stands for what is left out."""
    pattern = ''
    lines = [line for line in expected if line.strip()]
    for line in lines:
        text = line.strip()
        if text in ('…', '[…]', '...'):
            pattern += r'(?:[^\n]*\n)*?'
            continue
        parts = [re.escape(normal(part)).replace(r'\ ', ' ') for part in re.split(r'\[…\]|…', text)]
        pattern += r' ?[^\n]*? ?'.join(parts) + r'\n'
    text = ''.join(normal(line) + '\n' for line in printed.split('\n') if line.strip())
    return re.search(r'(?:^|\n)' + pattern, text) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', type=pathlib.Path, default=ROOT / 'build/release/dstune-mpi')
    parser.add_argument('--long', action='store_true', help='long commands instead of the quick ones')
    parser.add_argument('--all', action='store_true', help='both')
    parser.add_argument('--keep', type=pathlib.Path, help='run in this folder, which has to be new')
    parser.add_argument('pages', nargs='+', type=pathlib.Path, metavar='PAGE')
    arguments = parser.parse_args()
    kinds = {'quick', 'long'} if arguments.all else {'long'} if arguments.long else {'quick'}
    pages = Pages(arguments.program.resolve(), kinds)
    problems = []
    for path in arguments.pages:
        if arguments.keep:
            arguments.keep.mkdir()
            problems += pages.run_page(path.resolve(), arguments.keep.resolve())
            continue
        with tempfile.TemporaryDirectory(prefix='dstune-page-') as folder:
            problems += pages.run_page(path.resolve(), pathlib.Path(folder).resolve())
    print('\n'.join(problems) or f'{len(arguments.pages)} pages do what they say; {pages.num_run} blocks were run')
    if problems:
        return 1
    return 0 if pages.num_run > 0 or 'quick' in kinds else 77


if __name__ == '__main__':
    sys.exit(main())
