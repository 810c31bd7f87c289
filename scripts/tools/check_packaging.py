#!/usr/bin/env python3
"""check_packaging.py [--spack-arguments | --apptainer STAGE SECTION] [CHECKOUT]: the recipes in scripts/packaging.

Each recipe names this checkout's version, the needs of scripts/needs.sh by its own system's names, releases
that DstuneDependencies.cmake takes, and options that CMake knows. Its syntax is its system's, as far as that
shows without the system. The exit code is 1 where something is wrong.

--spack-arguments           prints what Spack's recipe gives CMake, without GPUs
--apptainer STAGE SECTION   prints the commands of a stage: of its %post or %test
package_systems.sh runs both on bare systems.
"""
import argparse
import ast
import pathlib
import re
import shutil
import subprocess
import sys

# Needs of the tests alone, and what oneDNN of Debian's asks for, have no place in a recipe.
FOR_TESTS = {'libgtest-dev', 'libgmock-dev', 'python3', 'git', 'libbenchmark-dev'}
DEBIAN_ALONE = {'ocl-icd'}
# EasyBuild's names of Spack's packages; the toolchain foss brings compiler and MPI.
EASYBUILD = {'cmake': 'CMake', 'ninja': 'Ninja', 'nlohmann-json': 'nlohmann_json', 'boost': 'Boost',
             'onednn': 'oneDNN', 'eigen': 'Eigen', 'fmt': 'fmt', 'spdlog': 'spdlog', 'yaml-cpp': 'yaml-cpp'}
EASYBUILD_CUDA = {'CUDA', 'cuDNN', 'NCCL'}
SECTIONS = {'arguments', 'environment', 'files', 'help', 'labels', 'post', 'runscript', 'setup', 'startscript',
            'test'}
# What CMake or its modules know without our saying so.
CMAKE_OPTIONS = {'BUILD_TESTING', 'MPI_C_COMPILER', 'CMAKE_CUDA_ARCHITECTURES'}

problems = []


def expect(holds, path, what):
    if not holds:
        problems.append(f'{path}: {what}')


class Checkout:
    def __init__(self, root):
        self.root = root
        self.packaging = root / 'scripts' / 'packaging'
        lists = (root / 'CMakeLists.txt').read_text()
        self.version = re.search(r'project\(dstune-mpi VERSION ([\d.]+)', lists)[1]
        self.cmake = re.search(r'cmake_minimum_required\(VERSION ([\d.]+)', lists)[1]
        found = (root / 'scripts/cmake/DstuneDependencies.cmake').read_text()
        self.options = CMAKE_OPTIONS | set(re.findall(
            r'^(?:set|option)\((DSTUNE_\w+)', (root / 'scripts/cmake/DstuneOptions.cmake').read_text(), re.M))
        # Spack's names of what has a least release.
        self.least = {
            'cmake': self.cmake,
            'mpi': re.search(r'find_package\(MPI (\d+)', found)[1],
            'nlohmann-json': re.search(r'find_package\(nlohmann_json ([\d.]+)', found)[1],
            'boost': re.search(r'find_package\(Boost ([\d.]+)', found)[1],
            'eigen': re.search(r'Eigen3_VERSION VERSION_LESS ([\d.]+)', found)[1],
            'cuda': re.search(r'CUDAToolkit_VERSION VERSION_LESS ([\d.]+)', found)[1],
            'cudnn': re.search(r'cudnn_version VERSION_LESS ([\d.]+)', found)[1],
        }
        needs = re.search(r'^needs=\(\n(.*?)^\)', (root / 'scripts/needs.sh').read_text(), re.M | re.S)[1]
        rows = [line.strip().strip('\'"').split('|') for line in needs.splitlines()]
        self.debian = {row[2] for row in rows} - FOR_TESTS
        self.spack = {row[3].split('+')[0] for row in rows if row[2] not in FOR_TESTS} - DEBIAN_ALONE


def as_numbers(version):
    return tuple(int(part) for part in re.findall(r'\d+', version))


def words_of_calls(tree, name):
    """The first argument of each call `name("...")`, with the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name in (getattr(node.func, 'id', ''), getattr(node.func, 'attr', '')):
            if node.args and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value, node


def parsed(path):
    try:
        return ast.parse(path.read_text(), str(path))
    except SyntaxError as error:
        expect(False, path, f'line {error.lineno}: {error.msg}')
        return None


def check_spack(checkout):
    path = checkout.packaging / 'spack' / 'package.py'
    tree = parsed(path)
    if tree is None:
        return
    classes = {node.name: [base.id for base in node.bases] for node in tree.body if isinstance(node, ast.ClassDef)}
    expect(classes == {'DstuneMpi': ['CMakePackage', 'CudaPackage']}, path, f'classes are {classes}')
    expect([word for word, _ in words_of_calls(tree, 'version')] == [checkout.version], path,
           f'the version is not {checkout.version}')
    expect(f'/dstune-mpi-{checkout.version}.tar.gz' in path.read_text(), path, 'the url has another version')
    specs = {re.match(r'[\w-]+', word)[0]: word for word, _ in words_of_calls(tree, 'depends_on')}
    # The compiler, the MPI and Ninja have words of their own.
    wanted = checkout.spack - {'gcc', 'openmpi', 'ninja'} | {'c', 'cxx', 'mpi', 'cuda', 'cudnn', 'nccl'}
    expect(set(specs) == wanted, path, f'depends_on differs from scripts/needs.sh in {sorted(set(specs) ^ wanted)}')
    expect([word for word, _ in words_of_calls(tree, 'generator')] == ['ninja'], path, 'the generator is not Ninja')
    for name, least in checkout.least.items():
        asked = re.search(r'@([\d.]+):', specs.get(name, ''))
        expect(asked and as_numbers(asked[1]) == as_numbers(least), path, f'{name} is needed from {least} on')
    for word, _ in [*words_of_calls(tree, 'define'), *words_of_calls(tree, 'define_from_variant')]:
        expect(word in checkout.options, path, f'CMake knows no option {word}')


def spack_arguments(checkout):
    """As Spack writes them where the variant cuda is off; a value that Spack alone knows is left out."""
    tree = ast.parse((checkout.packaging / 'spack' / 'package.py').read_text())
    arguments = [f'-D{word}=OFF' for word, _ in words_of_calls(tree, 'define_from_variant')]
    for word, call in words_of_calls(tree, 'define'):
        if isinstance(call.args[1], ast.Constant):
            arguments.append(f'-D{word}={"ON" if call.args[1].value is True else "OFF"}')
    return arguments


def value_of(node):
    """A value of an easyconfig, its constants (SYSTEM, ...) as names in text."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return [value_of(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        return {value_of(key): value_of(value) for key, value in zip(node.keys, node.values)}
    return ast.unparse(node)


def check_easybuild(checkout):
    folder = checkout.packaging / 'easybuild'
    files = sorted(folder.glob('*.eb'))
    expect(any(path.name.startswith('dstune-mpi-') for path in files), folder, 'there is no recipe')
    fields = {path: easyconfig(path) for path in files}
    shipped = {(field.get('name'), field.get('version')) for field in fields.values()}
    for path, field in fields.items():
        lacking = {'easyblock', 'name', 'version', 'homepage', 'description', 'toolchain', 'sources',
                   'sanity_check_paths', 'moduleclass'} - set(field)
        expect(not lacking, path, f'lacks {sorted(lacking)}')
        if lacking:
            continue
        named = {name: version for name, version, *_ in field.get('dependencies', []) + field['builddependencies']}
        suffix = field.get('versionsuffix', '').replace('%(cudaver)s', named.get('CUDA', ''))
        toolchain = field['toolchain']
        name = f'{field["name"]}-{field["version"]}-{toolchain["name"]}-{toolchain["version"]}{suffix}.eb'
        expect(path.name == name, path, f'the name has to be {name}')
        if field['name'] != 'dstune-mpi':
            continue
        expect(field['version'] == checkout.version, path, f'the version is not {checkout.version}')
        wanted = {EASYBUILD.get(name, name) for name in checkout.spack - {'gcc', 'openmpi'}}
        wanted |= EASYBUILD_CUDA if 'CUDA' in path.name else set()
        expect(set(named) == wanted, path, f'needs differ from scripts/needs.sh in {sorted(set(named) ^ wanted)}')
        expect(('oneDNN', named.get('oneDNN')) in shipped, path, 'there is no recipe of its oneDNN')
        for spack, least in checkout.least.items():
            has = named.get(EASYBUILD.get(spack, {'cuda': 'CUDA', 'cudnn': 'cuDNN'}.get(spack)))
            expect(has is None or as_numbers(has) >= as_numbers(least), path, f'{spack} is needed from {least} on')
        for option in re.findall(r'-D(\w+)=', field.get('configopts', '')):
            expect(option in checkout.options, path, f'CMake knows no option {option}')


def easyconfig(path):
    tree = parsed(path)
    return {} if tree is None else {node.targets[0].id: value_of(node.value)
                                    for node in tree.body if isinstance(node, ast.Assign)}


def check_lmod(checkout):
    path = checkout.packaging / 'lmod' / 'dstune-mpi' / f'{checkout.version}.lua'
    expect([other.name for other in path.parent.glob('*.lua')] == [path.name], path.parent, f'has more than {path.name}')
    if not path.exists():
        return
    text = path.read_text()
    expect(f'whatis("Version: {checkout.version}")' in text, path, f'the version is not {checkout.version}')
    expect(f'"/opt/dstune-mpi/{checkout.version}"' in text, path, 'the folder to fill in has another version')
    compiler = next(filter(None, map(shutil.which, ('luac', 'luac5.4', 'luac5.3', 'luac5.1'))), None)
    if compiler:
        said = subprocess.run([compiler, '-p', path], text=True, capture_output=True, check=False)
        expect(said.returncode == 0, path, said.stderr.strip())
    else:
        print("lmod: luac is missing, so that the module's syntax was not looked at")


def stages(path):
    """[{header, sections}] of a definition file; sections are (name with its words, lines)."""
    found = []
    for line in path.read_text().splitlines():
        if re.match(r'Bootstrap:', line):
            found.append({'header': {}, 'sections': []})
        if header := re.match(r'(\w+):\s*(.+)', line):
            found[-1]['header'][header[1]] = header[2].strip()
        elif line.startswith('%'):
            found[-1]['sections'].append((line[1:].split(), []))
        elif found and found[-1]['sections']:
            found[-1]['sections'][-1][1].append(line)
    return found


def commands_of(stage, section):
    return '\n'.join(line.strip() for words, lines in stage['sections'] if words == [section] for line in lines)


def check_apptainer(checkout):
    path = checkout.packaging / 'apptainer' / 'dstune-mpi.def'
    found = stages(path)
    names = [stage['header'].get('Stage') for stage in found]
    expect(names == ['build', 'final'], path, f'the stages are {names}')
    for stage in found:
        expect({'Bootstrap', 'From', 'Stage'} == set(stage['header']), path, f'a header is {stage["header"]}')
        for words, lines in stage['sections']:
            expect(words[0] in SECTIONS, path, f'there is no section %{words[0]}')
            expect(any(lines), path, f'%{words[0]} is empty')
            expect(words[1:] in ([], ['from', 'build']), path, f'%{" ".join(words)} takes files from nowhere')
        script = commands_of(stage, 'post')
        said = subprocess.run(['sh', '-n'], input=script, text=True, capture_output=True, check=False)
        expect(said.returncode == 0, path, f'%post of {stage["header"].get("Stage")}: {said.stderr.strip()}')
    sections = {words[0] for stage in found for words, _ in stage['sections']}
    expect({'runscript', 'test', 'help', 'post'} <= sections, path, f'has only {sorted(sections)}')
    versions = set(re.findall(r'dstune-mpi-([\d.]+)(?:\.tar|$)', path.read_text(), re.M))
    versions |= set(re.findall(r'Version ([\d.]+)$', path.read_text(), re.M))
    expect(versions == {checkout.version}, path, f'versions are {sorted(versions)}, not {checkout.version}')
    installed = set(re.search(r'apt-get install (.*)', commands_of(found[0], 'post').replace('\\\n', ' '))[1].split())
    expect(checkout.debian <= installed, path, f'installs no {sorted(checkout.debian - installed)}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--spack-arguments', action='store_true')
    parser.add_argument('--apptainer', nargs=2, metavar=('STAGE', 'SECTION'))
    parser.add_argument('checkout', nargs='?', type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    options = parser.parse_args()
    checkout = Checkout(options.checkout.resolve())
    if options.spack_arguments:
        print(*spack_arguments(checkout))
    elif options.apptainer:
        found = stages(checkout.packaging / 'apptainer' / 'dstune-mpi.def')
        stage, section = options.apptainer
        print(*[commands_of(part, section) for part in found if part['header'].get('Stage') == stage], sep='\n')
    else:
        for check in (check_spack, check_easybuild, check_lmod, check_apptainer):
            check(checkout)
        for problem in problems:
            print(problem)
        sys.exit(1 if problems else 0)


main()
