#!/usr/bin/env python3
"""check_names.py [CHECKOUT]: names that clash where files of a layer are compiled together.

Files of src/LAYER and those of its unit tests are joined to units (DstuneJoined.cmake), in which their
unnamed namespaces are one. So a type, a constant, or a function of the same parameters may stand in one file
of a folder alone, and may not have the name of a type in a header of this layer. Sources are read as
clang-format leaves them: what an unnamed namespace declares begins in the first column.

The exit code is 1 where names clash.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
# Objects of these tests are parts of several programs, and are not joined.
APART = ('kernels', 'cuda_libraries')


def without_templates(text):
    while (shorter := re.sub(r'<[^<>]*>', '', text)) != text:
        text = shorter
    return text


def parameter_types(text):
    """Of `name(const A& a, B b) {`, without the parameters' names and defaults."""
    inside = text[text.index('(') + 1:]
    inside = re.split(r'\)\s*(?:const\s*)?(?:noexcept\s*)?[{;]', inside)[0]
    return ','.join(re.sub(r'\s*=.*', '', part).strip().rsplit(' ', 1)[0] for part in inside.split(','))


def declared(path):
    """(name, what tells it from others of the name) of what the file's unnamed namespaces hold."""
    lines = path.read_text().split('\n')
    inside, raw = False, ''
    for number, line in enumerate(lines):
        if raw:
            raw = '' if raw in line else raw
            continue
        begun = re.search(r'R"(\w*)\(', line)
        if begun and f'){begun[1]}"' not in line[begun.end():]:
            raw = f'){begun[1]}"'
        if line == 'namespace {' or line == '}  // namespace':
            inside = line == 'namespace {'
            continue
        if not inside or not line or line[0] in ' }/#\t' or re.match(r'(template|using|namespace|static_assert)\b', line):
            continue
        if found := re.match(r'(?:struct|class|enum class|enum)\s+(\w+)', line):
            if not line.endswith(';'):
                yield found[1], ''
            continue
        text = ' '.join(lines[number:number + 6])
        shown = without_templates(re.sub(r'\[\[\w+\]\]', '', text))
        if found := re.match(r'[\w:\s*&]*?(\w+)\s*(\(|=|\{|\[|;)', shown):
            if found[2] != '(':
                yield found[1], ''
            elif not re.match(r'[A-Z_]+$', found[1]):
                plain = text[text.index(found[1] + '('):] if found[1] + '(' in text else shown
                yield found[1], '(' + parameter_types(plain) + ')'


def types_of(header):
    return set(re.findall(r'^(?:struct|class|enum class|enum) (\w+)[^;]*$', header.read_text(), flags=re.M))


def main():
    clashes = 0
    folders = [*(ROOT / 'src').iterdir(),
               *(path for path in (ROOT / 'mpi_tests/unit').iterdir() if path.name not in APART)]
    for folder in sorted(path for path in folders if path.is_dir()):
        places = collections.defaultdict(list)
        for header in [*folder.rglob('*.hpp'), *(ROOT / 'include/dstune' / folder.name).rglob('*.hpp')]:
            for name in types_of(header):
                places[name, ''].append(header)
        headers = {what: list(found) for what, found in places.items()}
        for source in sorted(folder.rglob('*.cpp')):
            for what in sorted(set(declared(source))):
                places[what].append(source)
        for (name, told), found in sorted(places.items()):
            if len(found) > 1 and found != headers.get((name, told)):
                clashes += 1
                where = ', '.join(str(path.relative_to(ROOT)) for path in found)
                print(f'{name}{told}: {where}')
    if clashes:
        print(f'{clashes} names clash where these files are compiled together: give all but one a better name')
    sys.exit(1 if clashes else 0)


if __name__ == '__main__':
    main()
