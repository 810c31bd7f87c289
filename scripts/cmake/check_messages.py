#!/usr/bin/env python3
"""check_messages.py [CHECKOUT]: words that users and developers read in sources.

The lines of a job's log stand in include/dstune/core/log_text.hpp. A call of log::info or log::warning in the
layers below formats one of them, or passes a text on; it has no words of its own. Each text is used, differs
from all others, and can be formatted.

plain_words.py has the rules for sentences. They hold for the texts of the log, for messages, which are the literals
of src/ with four words or more in C++ and in Python, and for the comments of the headers in include/. The comments of src/ and kernels/
that begin with "Of" or "What" may only become fewer.

The exit code is 1 where words break a rule. --count prints how many sentences there are, and their words.
"""
import ast
import pathlib
import re
import string
import sys

sys.dont_write_bytecode = True
import plain_words  # noqa: E402

ARGUMENTS = [one for one in sys.argv[1:] if one != '--count']
ROOT = pathlib.Path(ARGUMENTS[0] if ARGUMENTS else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
TEXTS = 'include/dstune/core/log_text.hpp'
LOGGING = ('tune', 'search', 'instrument', 'ranking', 'report')
MIN_WORDS = 4
# Comments of src/ and kernels/ without a subject. The number may only fall.
MAX_WITHOUT_SUBJECT = 1

# Neither header names nor words of a format stand for a text.
LITERAL = r'"(?:[^"\\\n]|\\.)*"'
JOINED = re.compile(rf'{LITERAL}(?:\s*{LITERAL})*')
CALL = re.compile(r'\blog::(?:info|warning)\(')


def text_of(literals):
    """Of adjacent literals, as the compiler joins them."""
    joined = ''.join(one[1:-1] for one in re.findall(LITERAL, literals))
    return joined.replace('\\n', '\n').replace('\\"', '"').replace('\\\\', '\\')


def blank(text):
    return re.sub(r'[^\n]', ' ', text)


def without_comments(source):
    """Comments, and literals that hold code, become blanks; others stay. Lines keep their numbers."""
    source = re.sub(r'R"(\w*)\(.*?\)\1"', lambda found: blank(found[0]), source, flags=re.DOTALL)
    return re.sub(rf"""({LITERAL})|//[^\n]*|'(?:\\.|[^'\\\n])'|#include[^\n]*""",
                  lambda found: found[1] or blank(found[0]), source)


def sentences(text):
    """Also the lines of a text that begin anew, and the items of a list."""
    for line in re.split(r'\n(?![a-z])|(?<=[.:;]) - ', text):
        yield from plain_words.split_sentences(line)


def is_text(text):
    """Neither a list of options nor a format: most of it are words."""
    words = text.split()
    return len(words) >= MIN_WORDS and 2 * sum(bool(re.match(r'\W?[A-Za-z]{2}', word)) for word in words) > len(words)


def faults_of(text, is_comment=False):
    """(sentence, fault) of each sentence that breaks a rule. In a comment a fragment need not be a sentence."""
    # A literal that begins with a blank or a mark goes on with a sentence.
    begins = bool(re.match(r'[\w`"{]', text))
    for at, sentence in enumerate(sentences(re.sub(r'`[^`]*`', '`code`', text))):
        # A message has statements between semicolons, and often the place of a problem before a colon.
        statements = [sentence] if is_comment else re.split(r';\s+', sentence)
        if (count := max(map(plain_words.num_words, statements))) > plain_words.MAX_WORDS:
            yield sentence, f'has {count} words'
        parts = [sentence] if sentence[0].isupper() else [] if is_comment else re.split(r'[:;]\s+', sentence)
        parts = parts[1:] if at == 0 and not begins else parts
        if any(plain_words.BEGINNING.match(part) and ' ' in part for part in parts):
            yield sentence, 'does not begin with its subject'
        for words in plain_words.banned_in(sentence):
            yield sentence, f'has "{words}"'


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
        for sentence, fault in faults_of(text):
            yield f'{TEXTS}: {name}: "{sentence[:60]}" {fault}'
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


def messages(sources):
    """(place, text) of every message."""
    for path, source in sources.items():
        for found in JOINED.finditer(source):
            if is_text(text := text_of(found[0])):
                yield f'{path}:{source.count(chr(10), 0, found.start()) + 1}', text


def messages_of_python():
    """Likewise. Texts that stand alone are comments."""
    for path in sorted((ROOT / 'src').rglob('*.py')):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        parts |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            text = ''
            if isinstance(node, ast.JoinedStr):
                text = ''.join(part.value if isinstance(part, ast.Constant) else '{}' for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                text = node.value
            if is_text(text):
                yield f'{path.relative_to(ROOT)}:{node.lineno}', text


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


def comments_of(*folders):
    """(place, text) of every comment of these folders' sources."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob('*')):
        if path.suffix in ('.h', '.hpp', '.cpp', '.cu', '.cuh'):
            for line, text in comments(path):
                yield f'{path.relative_to(ROOT)}:{line}', text


def counts(texts):
    return [plain_words.num_words(sentence) for _, text in texts
            for sentence in sentences(re.sub(r'`[^`]*`', '`code`', text))]


def check_words(texts, are_comments=False):
    for place, text in texts:
        for sentence, fault in faults_of(text, are_comments):
            yield f'{place}: "{sentence[:60]}" {fault}'


def check_mean(what, texts):
    words = counts(texts)
    if words and sum(words) / len(words) > plain_words.MAX_MEAN_WORDS:
        yield f'{what}: sentences have {sum(words) / len(words):.1f} words on average'


def check_other_comments():
    found = [place for place, text in comments_of('src', 'kernels') if re.match(r'(?:Of|What)\b', text)]
    if len(found) > MAX_WITHOUT_SUBJECT:
        yield (f'{len(found)} comments of src/ and kernels/ do not begin with their subject, {MAX_WITHOUT_SUBJECT} '
               f'at most: {", ".join(found)}')


def main():
    sources = {str(path.relative_to(ROOT)): without_comments(path.read_text())
               for ending in ('cpp', 'hpp') for path in sorted((ROOT / 'src').rglob(f'*.{ending}'))}
    read = [*messages(sources), *messages_of_python()]
    documented = list(comments_of('include'))
    problems = [*check_log_texts(sources), *check_calls(sources), *check_words(read), *check_words(documented, are_comments=True),
                *check_mean('messages', read), *check_mean('comments of include/', documented),
                *check_other_comments()]
    if '--count' in sys.argv:
        for what, texts in (('messages', read), ('comments of include/', documented)):
            words = counts(texts)
            print(f'{what}: {len(words)} sentences, {sum(words)} words, {sum(words) / len(words):.1f} on average')
    print('\n'.join(problems) or f'{len(read)} messages and {len(documented)} comments have plain words')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
