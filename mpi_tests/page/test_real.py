"""Pages that the program wrote, of a job with more than a hundred experiments and failures.

   test_real.py COMMAND...     mpirun -np 2 dstune-mpi
"""

import csv
import json
import os
import subprocess
import sys
import unittest

import browser

browser.enter_environment()

import pages  # noqa: E402

COMMAND = sys.argv[1:]
RECORDED = os.path.join(pages.ROOT, "mpi_tests", "bench")


def space_and_table():
    """A recorded space in which some experiments fail."""
    lines = pages.read(RECORDED, "spaces", "gpt2-sizes.json").splitlines()
    space = json.loads("\n".join(line for line in lines if not line.startswith("//")))
    space["dstune"]["workload"] = {"type": "replay", "table": "table.json"}
    table = json.loads(pages.read(RECORDED, "tables", "gpt2-sizes.json"))
    for place, name in enumerate(table):
        if place % 9 == 4:
            table[name] = {"status": "out_of_memory"}
        elif place % 11 == 5:
            table[name] = {"status": "failed"}
    return space, table


class RealPages(browser.PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = os.path.join(cls.browser.folder, "job")
        os.mkdir(folder)
        for name, value in zip(("space.json", "table.json"), space_and_table()):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(value, file)
        ended = subprocess.run([*COMMAND, "space.json", "--tuner", "gridsearch"], cwd=folder, timeout=200,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode != 0:
            raise AssertionError(ended.stdout)
        cls.results = os.path.join(folder, "autotuning_results")
        cls.path = os.path.join(cls.results, "report.html")
        cls.html = pages.read(cls.path)
        with open(os.path.join(cls.results, "results.csv"), encoding="utf-8", newline="") as file:
            cls.rows = list(csv.DictReader(file))

    def test_it_is_sound_in_every_window(self):
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.expect_sound(self.path, width, scheme)

    def test_it_is_the_template_with_the_data_of_report_json(self):
        self.expect_valid(self.html)
        emptied = pages.DATA_BLOCK.sub(r"\1@DATA@\3", self.html, count=1)
        self.assertEqual(emptied, pages.template())
        data = json.loads(pages.DATA_BLOCK.search(self.html)[2])
        self.assertEqual(data, json.loads(pages.read(self.results, "report.json")))
        self.assertEqual(set(pages.empty()) - set(data), set(), "what the page reads and the program does not write")
        self.assertEqual(set(pages.COLUMNS) - set(data["columns"]), set())

    def test_it_shows_what_the_other_files_say(self):
        ran = [row for row in self.rows if row["status"] in ("ok", "raced_out", "failed", "out_of_memory")]
        self.assertGreaterEqual(len(ran), 100)
        self.assertGreaterEqual(sum(row["status"] in ("failed", "out_of_memory") for row in ran), 10)
        self.browser.window(1280)
        self.browser.open(self.path)
        best = json.loads(pages.read(self.results, "optimal.json"))
        self.assertEqual(self.browser.text("#answer .name"), best["name"])
        self.assertEqual(self.browser.text("#answer .value"), f"{best['value']:.4g} samples/s")
        self.assertEqual(self.browser.text("#members-count"), f"{len(self.rows)} members.")
        figures = self.browser.all("section", "one.id")
        for name in ("best-over-time", "micro-batch", "knobs", "pairs", "slots", "members", "reasons", "environment"):
            self.assertIn(name, figures)
        self.browser.run("document.querySelector('#members-table .opener').click()")
        config = json.loads(self.browser.text("#members-table .details pre"))
        wanted = json.loads(pages.read(self.results, best["name"], "ds_config.json"))
        self.assertEqual(config, wanted)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
