"""Rows of the table of keys, src/core/keys/keys.json, for what a release of DeepSpeed has and the table has not.

A row is written where DeepSpeed says all of it: type, default, range and, as the field's description, what
it is. What it does not say is not guessed: such a row is left to a person.
"""

import json
import pathlib

from check_deepspeed_schema import TYPES

KEYS = pathlib.Path(__file__).resolve().parents[2] / "src/core/keys/keys.json"


def text_of(tables):
    """The file's text: a line for each row."""
    def lines(rows):
        return ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)

    parts = [f'"{name}": ' + (f"[\n{lines(part)}\n]" if isinstance(part, list) else json.dumps(part))
             for name, part in tables.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def parent_of(pointer):
    return pointer.rpartition("/")[0]


def known_pointers(rows):
    """Those of all rows, also by their other names."""
    known = {row["pointer"] for row in rows}
    for row in rows:
        first = row["pointer"]
        for alias in f'{row.get("aliases", "")}|{row.get("deprecated", "")}'.split("|"):
            if alias:
                known |= {f"{parent_of(first)}/{alias}{pointer[len(first):]}" for pointer in known
                          if f"{pointer}/".startswith(f"{first}/")}
    return known


def row_of(pointer, key, table):
    """(row, columns that a person must fill in)"""
    is_strict = key.get("strict", False)
    is_section = key["type"] == "object" and not key.get("nullable")
    row = {"pointer": pointer, "type": "section" if is_section else key["type"]}
    if key["default"] is not None and key["type"] != "object":
        row["default"] = key["default"]
    for column, inclusive, exclusive, step in (("low", "ge", "gt", 1), ("high", "le", "lt", -1)):
        if inclusive in key:
            row[column] = key[inclusive]
        elif exclusive in key:
            row[column] = key[exclusive] + step
    if "choices" in key:
        row["choices"] = "|".join(map(str, key["choices"]))
    if any(parent_of(other) == pointer and below.get("strict") for other, below in table["keys"].items()):
        row["model"] = True
    row["since"] = table["deepspeed"]
    row["help"] = key.get("description", "")
    unsure = []
    if key["type"] == "any" or not (is_strict or key["default"] is not None or pointer in TYPES):
        unsure.append("type")
    if key["type"] == "number" and ("gt" in key or "lt" in key):
        unsure.append("low" if "gt" in key else "high")  # rows have no open ranges
    return row, unsure + ["help"] * (not row["help"])


def add(rows, table):
    """Adds what the release alone has, each key behind what else its section has.
    ([row that was added], [(row that was not, columns to be filled in)])"""
    refused = [row["pointer"] for row in rows
               if row.get("effect") == "refused" and row["type"] in ("object", "section")]
    known = known_pointers(rows)
    added, left = [], []
    for pointer in sorted(table["keys"].keys() - known):
        if any(pointer.startswith(f"{section}/") for section in refused):
            continue
        row, unsure = row_of(pointer, table["keys"][pointer], table)
        section = parent_of(pointer)
        if unsure or (section and section not in known):
            left.append((row, unsure))
            continue
        known.add(pointer)
        added.append(row)
        last = max(index for index, other in enumerate(rows)
                   if f'{other["pointer"]}/'.startswith(f"{section}/"))
        rows.insert(last + 1, row)
    return added, left


def add_to(path, table):
    """The same to a file, and in words."""
    tables = json.loads(path.read_text())
    added, left = add(tables["deepspeed"], table)
    path.write_text(text_of(tables))
    yield f"{path}: {len(added)} rows added" + (", without an effect: see what each does" if added else "")
    yield from (f'added    {row["pointer"]}' for row in added)
    for row, unsure in left:
        words = ", ".join(unsure) or "the row of its section"
        yield f"left     {json.dumps(row, ensure_ascii=False)}: {words} to be filled in"
