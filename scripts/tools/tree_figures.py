#!/usr/bin/env python3
"""What the tree weighs: lines, files, long functions, and who includes whom.

    tree_figures.py [REVISION ...]        # without one: the working tree
    tree_figures.py --dot [REVISION] | dot -Tsvg > includes.svg

Prints one column a tree. Production is include, src and kernels, data files counted. Tests are the code and golden
texts of mpi_tests without its benchmarks. A long function has more than 60 lines from its name to its brace. An arrow
is a pair of folders of which one includes headers of the other; a circle is a set of folders that reach each other.
Lines count as they are: clang-format decides how long they are (docs/inside/contributing.md).
"""

import collections
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCTION = ("include", "src", "kernels")
TEST_TEXTS = (".hpp", ".cpp", ".c", ".py", ".sh", ".cmake", ".txt", ".diff", ".golden")
CODE = (".hpp", ".cpp", ".h", ".cu")
LONG = 60


def tree(revision):
    """The text files of a revision, or of the working tree, by path."""
    if revision is None:
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", *PRODUCTION, "mpi_tests"],
                               capture_output=True, check=True, text=True).stdout.split()
        contents = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    else:
        archive = subprocess.run(["git", "-C", ROOT, "archive", revision, *PRODUCTION, "mpi_tests"],
                                 capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            contents = {file.name: files.extractfile(file).read() for file in files if file.isfile()}
    return {name: text.decode(errors="replace") for name, text in contents.items()}


def is_production(name):
    return name.split("/")[0] in PRODUCTION


def is_test(name):
    return name.startswith("mpi_tests/") and not name.startswith("mpi_tests/bench/") and name.endswith(TEST_TEXTS)


def long_functions(text):
    """Definitions at the outermost level, or of members in classes there, that are too long."""
    lines = text.split("\n")
    words = "namespace|class|struct|enum|union|extern|if|for|while|switch|else|do\\b|try"
    begins = re.compile(rf"( {{0,2}})(?!{words}|[}}#/:])\S")
    first, found = 0, 0
    while first < len(lines):
        match = begins.match(lines[first])
        last = first
        # A declaration goes on to its brace in lines that are further in, and a constructor's list of members, too.
        while match and last + 1 < len(lines) and not re.search(r"[;{}]$", lines[last]) and \
                lines[last + 1].startswith(match[1] + "  "):
            last += 1
        if match and lines[last].endswith("{") and "(" in "".join(lines[first:last + 1]) and \
                not lines[last].endswith(("= {", "({")):
            end = next((at for at in range(last + 1, len(lines)) if lines[at].startswith(match[1] + "}")), len(lines))
            found += end - first + 1 > LONG
            first = end
        first += 1
    return found


def folder(name):
    parts = pathlib.PurePath(name).parts
    if parts[0] == "kernels":
        return "kernels"
    if parts[0] == "include":
        return parts[2] if len(parts) > 3 else "."
    return "/".join(parts[1:-1]) if len(parts) > 3 else f"{parts[1]}/."


def arrows(files):
    """Pairs of folders of production code, of which the first includes headers of the second. Public headers count
    as their layer's, so that an arrow within a layer is one to private headers."""
    found = collections.Counter()
    for name, text in files.items():
        for path in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.M):
            layer = "/".join(name.split("/")[:2])
            for beside in (os.path.dirname(name), "include", layer):
                other = os.path.normpath(f"{beside}/{path}")
                if other in files:
                    if folder(other) != folder(name):
                        found[folder(name), folder(other)] += 1
                    break
    return found


def circles(pairs):
    after = collections.defaultdict(set)
    for one, other in pairs:
        after[one].add(other)

    def reach(start):
        seen, waiting = set(), [start]
        while waiting:
            for other in after[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reached = {one: reach(one) for one in list(after)}
    return {frozenset(other for other in reached[one] if one in reached.get(other, ())) for one in reached
            if one in reached[one]}


def figures(files):
    production = {name: text for name, text in files.items() if is_production(name)}
    tests = {name: text for name, text in files.items() if is_test(name)}
    code = {name: text for name, text in production.items() if name.endswith(CODE)}
    pairs = arrows(code)
    rooms = ("src/instrument/", "include/dstune/instrument/", "src/space/", "include/dstune/space/")
    return {
        "production lines": sum(text.count("\n") for text in production.values()),
        "test lines": sum(text.count("\n") for text in tests.values()),
        "production files": len(production),
        "test files": len(tests),
        f"functions above {LONG} lines": sum(long_functions(text) for text in code.values()),
        "WorkloadKind:: outside its rooms": sum(
            text.count("WorkloadKind::") for name, text in code.items() if not name.startswith(rooms)),
        "arrows between folders": len(pairs),
        "circles of folders": len(circles(pairs)),
    }


def picture(files):
    """The folders' includes as a graph for Graphviz, each arrow with their number; one within a layer is dashed."""
    pairs = arrows({name: text for name, text in files.items() if is_production(name) and name.endswith(CODE)})
    lines = []
    for (one, other), count in sorted(pairs.items()):
        style = "dashed" if one.split("/")[0] == other.split("/")[0] else "solid"
        lines.append(f'  "{one}" -> "{other}" [label={count}, style={style}];')
    return "\n".join(["digraph includes {", "  rankdir=BT;", *lines, "}"])


def main():
    words = sys.argv[1:]
    if "--help" in words or "-h" in words:
        print(__doc__.strip())
        return
    revisions = [word for word in words if word != "--dot"] or [None]
    if "--dot" in words:
        print(picture(tree(revisions[0])))
        return
    columns = [figures(tree(revision)) for revision in revisions]
    for name in columns[0]:
        print(f"{name:34}", *(f"{column[name]:>10,}" for column in columns))


if __name__ == "__main__":
    main()
