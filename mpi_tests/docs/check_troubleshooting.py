#!/usr/bin/env python3
"""check_troubleshooting.py [PAGE]: whether the program still says what docs/troubleshooting.md quotes.

A list item that begins with code spans quotes messages: `no GPU answers (rank …)`. Their `…` stand for what varies.
Each part between them has to be in one text of the sources: adjacent literals are joined, and each place of a format
is a `…`. Messages of other programs stand behind the program's name, so that the item does not begin with them.

The exit code is 1 where a message is not in the sources, or the page quotes too few.
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'scripts/cmake'))
import check_messages  # noqa: E402  (its place is known now)

PAGE = ROOT / 'docs/troubleshooting.md'
MIN_MESSAGES = 40
MIN_WORDS = 2  # of the longest part: fewer are in some source by chance
ITEM = re.compile(r'^\s*[-*] (`[^`]+`(?:,\s+`[^`]+`)*)', re.MULTILINE)
QUOTED = re.compile(r'`([^`]+)`')
RAW = re.compile(r'R"(\w*)\((.*?)\)\1"', re.DOTALL)
PLACE = re.compile(r'\{[^{}]*\}')


def normal(text):
    return re.sub(r'\s+', ' ', PLACE.sub('…', text))


def texts_of_python(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield ''.join(part.value if isinstance(part, ast.Constant) else '…' for part in node.values)


def texts_of(path):
    source = path.read_text(errors='replace')
    if path.suffix == '.py':
        return texts_of_python(source)
    if path.suffix == '.sh':
        return [source]
    raw = [found[2] for found in RAW.finditer(source)]
    source = check_messages.without_comments(RAW.sub('""', source))
    return raw + [check_messages.text_of(found[0]) for found in check_messages.JOINED.finditer(source)]


def all_texts():
    # A line for each text: a part does not reach from one into another.
    paths = (path for folder in ('src', 'include', 'kernels', 'scripts') for path in (ROOT / folder).rglob('*')
             if path.suffix in ('.cpp', '.hpp', '.cu', '.cuh', '.py', '.sh') and path.is_file())
    return '\n'.join(normal(text) for path in paths for text in texts_of(path))


def parts_of(message):
    """Those that have a word; blanks and signs beside a place may come from anywhere."""
    parts = [re.sub(r'\s+', ' ', part) for part in message.split('…')]
    return [part.strip() for part in parts if re.search(r'[A-Za-z]{2}', part)]


def missing(message, texts):
    return [part for part in parts_of(message) if part not in texts]


def changed(message):
    """The same with another letter in its longest word."""
    word = max(re.findall(r'[A-Za-z]+', message), key=len)
    return message.replace(word, word[:-1] + ('q' if word[-1] != 'q' else 'x'), 1)


def messages_of(page):
    """(line, message); one may go on in the next line."""
    return [(page.count('\n', 0, item.start(1) + found.start()) + 1, ' '.join(found[1].split()))
            for item in ITEM.finditer(page) for found in QUOTED.finditer(item[1])]


def faults_of(page, texts):
    messages = messages_of(page)
    if len(messages) < MIN_MESSAGES:
        yield f'{len(messages)} messages are quoted; expected {MIN_MESSAGES} or more'
    for line, message in messages:
        if max((len(part.split()) for part in parts_of(message)), default=0) < MIN_WORDS:
            yield f'line {line}: `{message}` has no part of {MIN_WORDS} words'
            continue
        for part in missing(message, texts):
            yield f'line {line}: `{message}`: "{part}" is in no text of the sources'
        if not missing(changed(message), texts):
            yield f'line {line}: `{message}`: a changed word would not be noticed'


def main(arguments):
    path = pathlib.Path(arguments[0]) if arguments else PAGE
    page = path.read_text()
    problems = [f'{path.name}: {fault}' for fault in faults_of(page, all_texts())]
    print('\n'.join(problems) or f'{len(messages_of(page))} messages of {path.name} are in the sources')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
