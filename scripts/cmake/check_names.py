#!/usr/bin/env python3
"""check_names.py [CHECKOUT]: names that clash where files of a layer are compiled together, and comments and
messages that do not begin with their subject.

Files of src/LAYER and those of its unit tests are joined to units (DstuneJoined.cmake), in which their
unnamed namespaces are one. So a type, a constant, or a function of the same parameters may stand in one file
of a folder alone, and may not have the name of a type in a header of this layer. Sources are read as
clang-format leaves them: what an unnamed namespace declares begins in the first column.

A sentence of a comment in include/, and a message to users, begins with its subject: not with "Of", "What",
"Where" or "With who". Comments of src/ and kernels/ that begin with "Of" or "What" may only become fewer.

The exit code is 1 where names clash or a beginning is wrong.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
# Objects of these tests are parts of several programs, and are not joined.
APART = ('kernels', 'cuda_libraries')

# Comments of src/ and kernels/ that begin with one of two words. The number may only fall.
MAX_WITHOUT_SUBJECT = 1
WITHOUT_SUBJECT = re.compile(r'(?:Of|What|Where|With who)\b')
LITERAL = re.compile(r'''"(?:\\n)*(?:(?:Of|What|Where)\b|With who\b)|'''
                     r'''(?:\blog::\w+|Error|\bproblem|\bfmt::format)\(\s*"(?:of|what) ''')


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


def comments(path):
    """(line number, text) of every comment: lines below each other are one, an empty one ends it."""
    number, text = 0, ''
    source = path.read_text()
    if path.suffix == '.h':
        source = re.sub(r'(?m)^(\s*)(?:/\*+|\*) ', r'\1// ', source)
    for this, line in enumerate([*source.split('\n'), ''], start=1):
        code, _, words = line.partition('//')
        words = words.lstrip('/<').strip() if code.count('"') % 2 == 0 else ''
        if text and (code.strip() or not words):
            yield number, text
            text = ''
        if words:
            number = number if text else this
            text += ' ' * bool(text) + words
            if code.strip():
                yield number, text
                text = ''


def sources(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob('*')
                  if path.suffix in ('.h', '.hpp', '.cpp', '.cu', '.cuh'))


def begins_wrong():
    """Prints comments and messages that do not begin with their subject, and returns their number."""
    wrong = []
    for path in sources('include'):
        wrong += [(path, line, sentence) for line, text in comments(path)
                  for sentence in re.split(r'(?<=\.) ', text) if WITHOUT_SUBJECT.match(sentence)]
    for path in sources('src'):
        text = re.sub(r'(?m)^[ \t]*//.*', '', path.read_text())
        wrong += [(path, text.count('\n', 0, found.end()) + 1, text[found.start():].split('\n')[0])
                  for found in LITERAL.finditer(text)]
    for path, line, text in wrong:
        print(f'{path.relative_to(ROOT)}:{line}: begin with the subject: {text}')
    others = [text for path in sources('src', 'kernels') for _, text in comments(path)
              if re.match(r'(?:Of|What)\b', text)]
    print(f'{len(others)} comments of src/ and kernels/ begin with "Of" or "What", '
          f'{MAX_WITHOUT_SUBJECT} at most')
    return len(wrong) + max(0, len(others) - MAX_WITHOUT_SUBJECT)


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
    sys.exit(1 if begins_wrong() or clashes else 0)


if __name__ == '__main__':
    main()
