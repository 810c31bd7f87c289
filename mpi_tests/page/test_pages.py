"""Every kind of page, in narrow and wide windows, light and dark; and what each of them says."""

import unittest

import browser

browser.enter_environment()

import pages  # noqa: E402

CASES = {
    "many": lambda: pages.synthetic(150), "empty": pages.empty, "one": pages.one_member, "failed": pages.all_failed,
    "running": pages.running, "no_answer_yet": pages.running_without_answer,
    "ten_thousand": lambda: pages.synthetic(10000),
}
FIGURES = ["best-over-time", "micro-batch", "knobs", "pairs", "memory", "predicted-speed", "predicted-memory", "front",
           "memory-step", "host-memory-step", "slots"]


class Pages(browser.PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        template = pages.template()
        cls.html = {name: pages.filled(template, make()) for name, make in CASES.items()}
        cls.paths = {name: cls.browser.write(name, html) for name, html in cls.html.items()}

    def open(self, name, width=1280):
        self.browser.window(width)
        self.browser.open(self.paths[name])

    def sections(self):
        return self.browser.all("section", "one.id")

    def test_every_page_is_sound_in_every_window(self):
        for name, path in self.paths.items():
            for width in (390, 1280):
                for scheme in ("light", "dark"):
                    with self.subTest(page=name, width=width, scheme=scheme):
                        self.expect_sound(path, width, scheme)

    def test_html_is_valid(self):
        for name, html in self.html.items():
            with self.subTest(page=name):
                self.expect_valid(html)
        # As the script makes it, too.
        for name in ("many", "failed"):
            with self.subTest(drawn=name):
                self.open(name)
                self.expect_valid("<!doctype html>" + self.browser.run("return document.documentElement.outerHTML"))

    def test_a_narrow_window_shows_the_value_first(self):
        self.open("many", 390)
        for selector in ("#answer .value", "#answer .gain", "#answer .name"):
            self.assertLess(self.browser.box(selector)["bottom"], 844, selector)
        self.assertLess(self.browser.box("#members-table tbody td")["left"], 60, "the value is not the first column")

    def test_every_figure_is_there_with_its_words_and_its_table(self):
        self.open("many")
        self.assertEqual([one for one in self.sections() if one in FIGURES], FIGURES)
        for name in FIGURES:
            self.assertTrue(self.browser.text(f"#{name} figcaption, #{name} .note"), name)
        self.browser.run("for (const one of document.querySelectorAll('.as-table')) one.open = true")
        self.browser.drawn()
        rows = self.browser.all(".as-table", "one.querySelectorAll('tr').length")
        self.assertGreaterEqual(len(rows), 8)
        self.assertGreater(min(rows), 1)

    def test_labels_of_the_front_do_not_overlap(self):
        for width in (390, 1280):
            self.open("many", width)
            boxes = self.browser.run("""return [...document.querySelectorAll('#front text.label')].map(one => {
                const {left, right, top, bottom} = one.getBoundingClientRect();
                return [left, right, top + 2, bottom - 2, one.textContent]; })""")
            self.assertGreater(len(boxes), 8)
            self.assertTrue(any(":" in box[4] for box in boxes), "no member has its name")
            for place, one in enumerate(boxes):
                for other in boxes[:place]:
                    apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
                    self.assertTrue(apart, f"{one[4]} and {other[4]} overlap at {width}")

    def test_long_idle_stretches_are_cut_out(self):
        self.open("many")
        for name in ("best-over-time", "slots"):
            self.assertIn("idle stretch is cut out", self.browser.text(f"#{name} figcaption"))
            self.assertNotEqual(self.browser.all(f"#{name} .cut", "one.tagName"), [])
        # Two jobs of a minute, a day apart: each has about half of the width.
        data = pages.synthetic(8, share_run=1)
        data["runs"] = [[0, 0, start, start + 60, [0, 1], True] for start in (0, 86400)]
        self.browser.open(self.browser.write("apart", pages.filled(pages.template(), data)))
        widths = self.browser.run("""return document.querySelector('#slots .plot .k0').getAttribute('d')
            .match(/h([\\d.]+)/g).map(one => Number(one.slice(1)))""")
        self.assertEqual(len(widths), 2)
        self.assertGreater(min(widths), 400)
        self.assertIn("23 h 59 m idle", self.browser.text("#slots .plot svg"))

    def test_a_job_that_runs_says_so(self):
        self.open("running")
        banner = self.browser.text("#running")
        self.assertRegex(banner, r"This job is running: search, \d+ of about \d+ experiments? done, 2 running; as of "
                                 r"2026-11-29 14:31:05 UTC; reload for newer data\. About 2 m 30 s left")
        self.assertIn("so far", self.browser.text("h1"))
        self.open("no_answer_yet")
        self.assertIn("measuring the machine, 0 of about 3 experiments done", self.browser.text("#running"))
        self.assertIn("There is no answer yet", self.browser.text("#answer"))

    def test_without_an_answer_the_reasons_come_first(self):
        self.open("failed")
        self.assertRegex(self.browser.text("#answer"), r"There is no answer: none of \d+ experiments gave a result")
        self.assertEqual(self.sections()[0], "reasons")
        self.open("empty")
        self.assertIn("the space has no members", self.browser.text("#answer"))
        self.assertEqual(self.sections(), [])

    def test_paper_is_light_and_has_no_buttons(self):
        self.browser.window(1280, "dark", "print")
        self.browser.open(self.paths["many"])
        self.assertEqual(self.browser.all("body", "getComputedStyle(one).backgroundColor"), ["rgb(255, 255, 255)"])
        inks = set(self.browser.all("#slots text", "getComputedStyle(one).fill"))
        self.assertEqual(inks, {"rgb(27, 31, 36)", "rgb(87, 96, 106)"})
        self.assertFalse(any(self.browser.all("button.copy, nav, input", "one.offsetParent !== null")))
        self.browser.run("dispatchEvent(new Event('beforeprint'))")
        self.assertTrue(self.browser.run("return document.querySelector('details.in-print').open"))

    def test_a_metric_that_counts_downwards(self):
        data = pages.synthetic(400, share_run=1)
        data["metric"] |= {"name": "latency", "unit": "µs per optimizer step", "is_minimised": True}
        for row in data["members"]:
            if row[3]:
                row[3:6] = [1e9 / row[3], 1e9 / row[5], 1e9 / row[4]]
        best = min((row for row in data["members"] if row[3]), key=lambda row: row[3])
        data["answer"] |= {"value": best[3], "ci_low": best[4], "ci_high": best[5]}
        data["front"] = [[place, 1e9 / value, *rest] for place, value, *rest in data["front"]]
        self.browser.window(1280)
        self.browser.open(self.browser.write("latency", pages.filled(pages.template(), data)))
        self.assertEqual(self.browser.text("#answer .value"), f"{best[3] / 1e6:.4g} s per optimizer step")
        self.assertIn("Lower is better", self.browser.text("#best-over-time figcaption"))
        self.assertEqual(self.browser.text("#members-table tbody td"), f"{best[3] / 1e6:.4g}")
        # As at throughput, eight GPUs are better than two.
        self.browser.run("document.querySelector('#knobs .as-table').open = true")
        self.browser.drawn()
        medians = dict(self.browser.run("""return [...document.querySelectorAll('#knobs .as-table tbody tr')].map(row =>
            [...row.cells].map(cell => cell.textContent)).filter(row => row[0] === 'num_gpus')
            .map(row => [row[1], Number(row[2].slice(1))])"""))
        self.assertGreater(medians["8"], 1)
        self.assertLess(medians["2"], 1)

    def test_effects_compare_members_that_differ_in_one_knob(self):
        data = pages.one_member()
        data["keys"] = [pages.key("/a", [1, 2, 3]), pages.key("/b/c", [True, False]),
                        pages.key("/train_batch_size", [1, 2, 3], is_derived=True)]
        row = data["members"][0]
        value = {(0, 0): 10, (1, 0): 20, (2, 0): 30, (0, 1): 1, (1, 1): 4, (2, 1): 3}
        data["members"] = [[f"m{a}{b}", 0, None, speed, None, None, None, None, None] + row[9:20] + [[a, b, a]]
                           for (a, b), speed in value.items()]
        data["answer"]["member"] = 2
        data["memory_of"], data["front"], data["runs"] = [], [], []
        self.browser.window(1280)
        self.browser.open(self.browser.write("effects", pages.filled(pages.template(), data)))
        self.browser.run("document.querySelector('#knobs .as-table').open = true")
        self.browser.drawn()
        rows = self.browser.run("""return [...document.querySelectorAll('#knobs .as-table tbody tr')].map(row =>
            [...row.cells].map(cell => cell.textContent))""")
        # c: the pairs are 10/1, 20/4 and 30/3; a = 2: 20/10, 20/30, 4/1 and 4/3.
        self.assertIn(["b.c", "true", "×10", "×7.5", "×10", "3"], rows)
        self.assertIn(["b.c", "false", "×0.1", "×0.1", "×0.15", "3"], rows)
        self.assertIn(["a", "2", "×1.667", "×1.167", "×2.5", "4"], rows)
        self.assertFalse(any(row[0] == "train_batch_size" for row in rows), "what follows from other keys is no knob")
        cells = self.browser.run("""return [...document.querySelectorAll('#pairs tbody tr')].map(row =>
            [...row.cells].map(cell => cell.textContent))""")
        self.assertIn(["true", "10", "20", "★ 30"], cells)


if __name__ == "__main__":
    unittest.main()
