#!/usr/bin/env python3
"""check_messages.py [CHECKOUT]: words that a job's user reads.

The lines of a job's log stand in include/dstune/core/log_text.hpp. A call of log::info or log::warning in the
layers below formats one of them, or passes a text on; it has no words of its own. Each text is used, differs
from all others, and can be formatted. The texts of the summary, the page and the plan, and of what a tuner does
not run, are the literals of src/report, src/ranking and src/search.

A sentence of any of them has at most 30 words and begins with its subject. Phrases that readers stumbled over
do not come back. The exit code is 1 where a text breaks a rule.
"""
import pathlib
import re
import string
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
TEXTS = 'include/dstune/core/log_text.hpp'
LOGGING = ('tune', 'search', 'instrument', 'ranking', 'report')
READ = ('report', 'ranking', 'search')
# Lines of progress are put together of parts, which stand where they are chosen.
READ_FILES = ('src/tune/control/progress.cpp', 'src/tune/control/progress_text.cpp')

MAX_WORDS = 30
BEGINNING = re.compile(r'(?:What|Where|Whose|Of|With who[m]?)\b', re.IGNORECASE)
BANNED = ('is believed of', 'as long as it may', 'but for ', 'all the same', 'in the training that it is for')
# Neither header names nor words of a format stand for a text.
LITERAL = r'"(?:[^"\\\n]|\\.)*"'
JOINED = re.compile(rf'{LITERAL}(?:\s*{LITERAL})*')
CALL = re.compile(r'\blog::(?:info|warning)\(')


def text_of(literals):
    """Of adjacent literals, as the compiler joins them."""
    joined = ''.join(one[1:-1] for one in re.findall(LITERAL, literals))
    return joined.replace('\\n', '\n').replace('\\"', '"').replace('\\\\', '\\')


def without_comments(source):
    """Comments become blanks; literals stay."""
    return re.sub(rf'({LITERAL})|//[^\n]*', lambda found: found[1] or '', source)


def sentences(text):
    for line in text.split('\n'):
        yield from re.split(r'(?<=[.!?])\s+(?=[A-Z])', line)


def faults_of(text):
    faults = []
    for sentence in sentences(text):
        # A term of a list, or the part in front of a colon, begins anew behind it.
        num_words = max(len(part.split()) for part in re.split(r'[:;]\s', sentence))
        if num_words > MAX_WORDS:
            faults.append(f'a sentence of {num_words} words')
    if BEGINNING.match(text) and ' ' in text:
        faults.append('does not begin with its subject')
    faults += [f'has "{words.strip()}"' for words in BANNED if words in text]
    return faults


def formatted(text):
    """With a sample for each place, as the compiler has checked the types."""
    samples = [1.5 if (spec or '')[-1:] in 'fge' and spec else 'sample'
               for _, field, spec, _ in string.Formatter().parse(text) if field is not None]
    return text.format(*samples)


def argument_of(source, begin):
    """From behind a call's opening bracket to its end."""
    depth, at = 1, begin
    while depth > 0:
        literal = re.compile(LITERAL).match(source, at)
        if literal:
            at = literal.end()
            continue
        depth += {'(': 1, ')': -1}.get(source[at], 0)
        at += 1
    return source[begin:at - 1]


def check_log_texts(sources):
    header = without_comments((ROOT / TEXTS).read_text())
    found = re.findall(rf'constexpr const char\* (\w+) =\s*({JOINED.pattern});', header)
    if not found or len(found) != header.count('constexpr const char*'):
        yield f'{TEXTS}: a text that is not understood'
    names_of = {}
    for name, literals in found:
        text = text_of(literals)
        for fault in faults_of(text):
            yield f'{TEXTS}: {name} {fault}'
        if text in names_of:
            yield f'{TEXTS}: {name} is {names_of[text]}'
        names_of[text] = name
        if not any(f'log_text::{name}' in source for source in sources.values()):
            yield f'{TEXTS}: nothing uses {name}'
        try:
            formatted(text)
        except (ValueError, IndexError) as error:
            yield f'{TEXTS}: {name}: {error}'


def check_calls(sources):
    for path, source in sources.items():
        if path.split('/')[1] not in LOGGING:
            continue
        for call in CALL.finditer(source):
            argument = argument_of(source, call.end())
            if any(re.search(r'[A-Za-z]{3}', text_of(one)) for one in JOINED.findall(argument)):
                line = source.count('\n', 0, call.start()) + 1
                yield f'{path}:{line}: a line of the log has words of its own; they belong into {TEXTS}'


def check_literals(sources):
    for path, source in sources.items():
        if path.split('/')[1] not in READ and path not in READ_FILES:
            continue
        for found in JOINED.finditer(re.sub(r'#include[^\n]*', '', source)):
            text = text_of(found[0])
            if len(text.split()) >= 3:
                for fault in faults_of(text):
                    yield f'{path}: "{text[:60]}" {fault}'


def main():
    # The embedded sources of the page and of Python are not C++.
    sources = {str(path.relative_to(ROOT)): without_comments(path.read_text())
               for folder in ('src', ) for ending in ('cpp', 'hpp') for path in (ROOT / folder).rglob(f'*.{ending}')}
    problems = [*check_log_texts(sources), *check_calls(sources), *check_literals(sources)]
    print('\n'.join(problems) or f'{TEXTS} and {len(sources)} sources have plain words')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
