"""scripts/tools/check_deepspeed_schema.py finds what a release reads, and loses nothing in silence. Releases are
played by a few lines; the recorded ones are in data/."""

import json
import pathlib
import sys
import typing
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts" / "tools"))

import check_deepspeed_rows  # noqa: E402
import check_deepspeed_schema as walk  # noqa: E402


class Release:
    """Reads some keys by hand; raises `error` then; refuses what it has removed."""

    version, world_size = "0.20.0", 4

    def __init__(self, removed=(), error=None):
        self.removed, self.error = removed, error

    def refusal_of_config(self, config):
        return next((f"'{name}' has been removed" for name in self.removed
                     if name in config or name in config.get("zero_optimization", {})), None)

    def initialized(self, config):
        refusal = self.refusal_of_config(config)
        if refusal:
            raise ValueError(refusal)
        config.get("steps_per_print", 10)
        if "aio" in config:
            config["aio"].get("queue_depth", 8)
        if self.error:
            raise ValueError(self.error)


def table_of(release, previous=None):
    removed = walk.Removed(release, previous)
    return {"deepspeed": release.version, "removed": removed.words,
            "keys": walk.read_by_hand(release, removed, {})}


class WalkTest(unittest.TestCase):
    def test_keys_read_by_hand_are_found_with_their_defaults(self):
        keys = table_of(Release())["keys"]
        self.assertEqual(keys["/aio/queue_depth"], {"type": "integer", "default": 8})
        self.assertEqual(keys["/steps_per_print"]["default"], 10)

    def test_a_removed_section_is_left_out_and_the_others_are_found(self):
        table = table_of(Release(removed=("amp", "nebula")))
        self.assertEqual(set(table["removed"]), {"/amp", "/nebula"})
        self.assertIn("/aio/queue_depth", table["keys"])

    def test_removed_keys_of_zero_are_known_from_the_older_table(self):
        previous = {"deepspeed": "0.19.8", "removed": {},
                    "keys": {"/zero_optimization/mics_shard_size": {}, "/bf16/enabled": {}}}
        table = table_of(Release(removed=("mics_shard_size",)), previous)
        self.assertEqual(list(table["removed"]), ["/zero_optimization/mics_shard_size"])

    def test_a_known_end_of_the_walk_is_passed(self):
        self.assertIn("/aio/queue_depth", table_of(Release(error="stage 1 requires an optimizer"))["keys"])

    def test_anything_else_that_is_raised_ends_it(self):
        with self.assertRaisesRegex(SystemExit, "keys would be lost: something new"):
            table_of(Release(error="something new"))

    def test_a_section_without_keys_ends_it(self):
        previous = {"deepspeed": "0.19.8", "removed": {},
                    "keys": {"/aio": {}, "/aio/queue_depth": {}, "/amp": {}, "/amp/enabled": {}}}
        found = {"deepspeed": "0.20.0", "removed": {"/amp": "removed"}, "keys": {"/aio": {}}}
        with self.assertRaisesRegex(SystemExit, "no key found in /aio, which"):
            walk.refuse_lost_sections(previous, found)


class Field:
    """As pydantic has them."""

    alias, json_schema_extra, metadata = None, None, ()

    def __init__(self, annotation, default, description=None, **limits):
        self.annotation, self.default, self.description = annotation, default, description
        self.metadata = [type("Limit", (), limits)]

    def get_default(self, call_default_factory):
        return self.default


class Nested:
    model_fields = {"depth": Field(int, 2, "How  deep.\n", ge=1)}


class Zero:
    model_fields = {"stage": Field(int, 0), "way": Field(typing.Optional[str], None, "Which way"),
                    "ratio": Field(float, 0.5, "An open range", gt=0), "odd": Field(bool, False),
                    "nest": Field(Nested, None, "A section")}


class TableOfKeysTest(unittest.TestCase):
    def setUp(self):
        self.rows = [{"pointer": "/zero", "type": "section", "model": True, "help": "z"},
                     {"pointer": "/zero/stage", "type": "integer", "help": "s", "aliases": "stag"},
                     {"pointer": "/refused", "type": "object", "effect": "refused", "help": "r"},
                     {"pointer": "/last", "type": "boolean", "help": "l"}]

    def add(self, keys):
        return check_deepspeed_rows.add(self.rows, {"deepspeed": "0.20.0", "keys": keys})

    def test_what_is_described_becomes_a_row_in_its_section(self):
        self.add(walk.model_fields(Zero, "/zero"))
        self.assertEqual(self.rows[2:5], [
            {"pointer": "/zero/nest", "type": "section", "model": True, "since": "0.20.0", "help": "A section"},
            {"pointer": "/zero/nest/depth", "type": "integer", "default": 2, "low": 1, "since": "0.20.0",
             "help": "How deep"},
            {"pointer": "/zero/way", "type": "text", "since": "0.20.0", "help": "Which way"}])
        self.assertEqual(self.rows[5]["pointer"], "/refused")

    def test_nothing_is_guessed(self):
        _, left = self.add({**walk.model_fields(Zero, "/zero"), "/by_hand": {"type": "text", "default": None}})
        self.assertEqual([(row["pointer"], unsure) for row, unsure in left],
                         [("/by_hand", ["type", "help"]), ("/zero/odd", ["help"]), ("/zero/ratio", ["low"])])

    def test_other_names_and_refused_sections_are_known(self):
        key = {"type": "integer", "default": 0, "description": "d"}
        self.assertEqual(self.add({"/zero/stag": key, "/refused/more": key}), ([], []))

    def test_the_table_is_written_as_it_is_read(self):
        text = check_deepspeed_rows.KEYS.read_text()
        self.assertEqual(check_deepspeed_rows.text_of(json.loads(text)), text)

    def test_the_table_has_the_columns_of_its_schema_in_their_order(self):
        schema = json.loads(check_deepspeed_rows.KEYS.with_name("keys.schema.json").read_text())
        columns = schema["$defs"]["row"]
        order = list(columns["properties"])
        for rows in json.loads(check_deepspeed_rows.KEYS.read_text()).values():
            for row in rows if isinstance(rows, list) else ():
                self.assertEqual(list(row), sorted(row, key=order.index))
                self.assertLessEqual(set(columns["required"]), set(row))

    def test_the_newest_release_has_no_key_that_the_table_has_not(self):
        table = walk.read_all(ROOT / "mpi_tests/unit/core/data")[-1]
        added, left = check_deepspeed_rows.add(
            json.loads(check_deepspeed_rows.KEYS.read_text())["deepspeed"], table)
        self.assertEqual((added, left), ([], []))


class RowsTest(unittest.TestCase):
    def test_rows_of_0_19_7_are_what_it_has_otherwise_than_0_19_6(self):
        tables = walk.read_all(ROOT / "mpi_tests/unit/core/data")
        table = next(table for table in tables if table["deepspeed"] == "0.19.7")
        previous = walk.previous_of(tables, "0.19.7")
        self.assertEqual(previous["deepspeed"], "0.19.6")
        rows = [row.split(": ")[0].split() for row in list(walk.rows_to_add(previous, table))[1:]]
        self.assertEqual(rows, [
            ["new", "/zero_optimization/compute_grad_norm"], ["new", "/zero_optimization/parameter_alignment"],
            ["refused", "/compression_training"], ["refused", "/nebula"], ["refused", "/quantize_training"],
            ["refused", "/sparse_attention"], ["refused", "/zero_optimization/mics_hierarchical_params_gather"],
            ["refused", "/zero_optimization/mics_shard_size"], ["changed", "/hybrid_engine/max_out_tokens"]])

    def test_a_key_that_goes_without_a_word_is_told(self):
        previous = {"deepspeed": "0.19.8", "removed": {}, "keys": {"/a": {"default": 1}, "/b": {}}}
        table = {"deepspeed": "0.20.0", "removed": {}, "keys": {"/a": {"default": 2}}}
        self.assertEqual(list(walk.rows_to_add(previous, table))[1:],
                         ["unknown  /b: until 0.20.0", "changed  /a: default 1 before 0.20.0, 2 now"])

    def test_releases_are_ordered_by_their_numbers(self):
        tables = [{"deepspeed": version} for version in ("0.19.8", "0.19.10")]
        self.assertEqual(walk.previous_of(tables, "0.19.11")["deepspeed"], "0.19.10")


if __name__ == "__main__":
    unittest.main()
