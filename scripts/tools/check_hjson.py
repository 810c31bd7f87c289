#!/usr/bin/env python3
"""Checks the vectors of the Hjson reader against the Python package hjson (which DeepSpeed uses).

    python3 scripts/tools/check_hjson.py [--write] [mpi_tests/unit/base/data/hjson_vectors.json]

Each vector has a text and either the value that is read or "refused": true. Where we refuse what the
package reads, or read what it stumbles over, the vector says why in "differs" and what the package
does in "package". With --write the package's answers replace what the file says; a new vector needs
its text alone. The exit code is 1 where a vector and the package disagree.
"""
import json
import sys

import hjson

HEADER = """// Hjson texts and what they mean: checked by the unit tests of layer base against our reader, and by
// scripts/tools/check_hjson.py against version %s of the Python package hjson (--write fills in its answers).
// Deliberate differences say why in "differs", and what the package does in "package".
""" % hjson.__version__


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("a key is given twice")
    return dict(pairs)


def reference(text):
    """What the package makes of a text; how it fails does not matter (some faults are IndexErrors)."""
    try:
        # DeepSpeed refuses repeated keys by the same means.
        value = hjson.loads(text, object_pairs_hook=no_duplicates)
        # Half a surrogate pair, which it lets through, can not be written.
        json.dumps(value, ensure_ascii=False).encode()
        return {"value": value}
    except Exception:  # pylint: disable=broad-except
        return {"refused": True}


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    path = arguments[0] if arguments else "mpi_tests/unit/base/data/hjson_vectors.json"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    vectors = json.loads("".join(line for line in text.splitlines(True) if not line.startswith("//")))
    wrong = 0
    for vector in vectors:
        answer = reference(vector["text"])
        if "--write" in sys.argv:
            if "differs" in vector:
                vector["package"] = answer
            else:
                vector.pop("value", None)
                vector.pop("refused", None)
                vector.update(answer)
            continue
        if "differs" in vector:
            expected = vector["package"]
        else:
            expected = {key: vector[key] for key in ("value", "refused") if key in vector}
        # As texts: in Python 1 == True.
        if json.dumps(expected) != json.dumps(answer):
            wrong += 1
            print(f"{vector['text']!r}: expected {expected}, the package gives {answer}")
    if "--write" in sys.argv:
        lines = ",\n".join(" " + json.dumps(vector, ensure_ascii=False) for vector in vectors)
        with open(path, "w", encoding="utf-8") as file:
            file.write(HEADER + "[\n" + lines + "\n]\n")
    else:
        print(f"{len(vectors) - wrong} of {len(vectors)} vectors agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
