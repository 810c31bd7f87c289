#!/usr/bin/env python3
"""Tables become Markdown that is as wide as the rules allow, and rows are read from what benches print."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'scripts'))
import figures  # noqa: E402


def table(columns, rows, notes=(), **more):
    return {'name': 'one', 'columns': columns, 'rows': rows, 'notes': list(notes), **more}


class FiguresTest(unittest.TestCase):
    def test_numbers_of_a_column_have_equal_decimals(self):
        text = figures.body(table(['space', 'regret'], [['a', 0.5], ['b', 1.25], ['c', None], ['d', 1000]]),
                            figures.PAGES)
        self.assertEqual(text, '| space | regret |\n| --- | ---: |\n| a | 0.50 |\n| b | 1.25 |\n| c | |\n'
                               '| d | 1,000.00 |\n')

    def test_a_wide_table_is_a_list(self):
        text = figures.body(table(['subject', 'figure', 'remark'], [['a', 2, 'word ' * 30]]), figures.PAGES)
        self.assertTrue(text.startswith('- **a**. Figure: 2. Remark: word'), text)
        self.assertLessEqual(max(map(len, text.split('\n'))), figures.MAX_COLUMNS)

    def test_links_are_relative_to_the_page(self):
        note = 'See [the search](docs/inside/search.md#race).'
        self.assertIn('[the search](../inside/search.md#race)',
                      figures.body(table(['a'], [['b']], [note]), figures.PAGES))
        self.assertIn('[the search](docs/inside/search.md#race)',
                      figures.body(table(['a'], [['b']], [note]), figures.ROOT))

    def test_notes_that_cells_refer_to_are_numbered(self):
        self.assertIn('\n1. one\n2. two\n', figures.body(table(['a'], [['b [1]']], ['one', 'two']), figures.PAGES))

    def test_a_cell_has_the_figure_of_another_table(self):
        other = table(['space', 'tuner', 'regret %'], [['all', 'grid', 0.5], ['all', 'race', 0.25]])
        cell = figures.with_figures('{other: all, race: regret %} %', {'other': other}, table([], []))
        self.assertEqual(cell, '0.25 %')
        with self.assertRaises(figures.Fault):
            figures.with_figures('{other: all, tpe: regret %}', {'other': other}, table([], []))

    def test_a_line_does_not_begin_like_a_list(self):
        with self.assertRaises(figures.Fault):
            figures.wrapped('word ' * 19 + 'word - word')

    def test_rows_are_those_that_a_command_prints(self):
        printed = '{"tables": [{"name": "t", "columns": ["space", "n", "of"], "rows": [["a", 1.26, 4], ["b", 2, 4]]}]}'
        part = {'command': 'bench', 'table': 't', 'cells': ['space', '{n} of {of}', '=quiet', 'n'],
                'where': {'space': ['a']}, 'decimals': [None, None, None, 1]}
        self.assertEqual(figures.measured_rows(part, {'bench': printed}), [['a', '1.26 of 4', 'quiet', 1.3]])
        part['cells'][0] = 'spaces'
        with self.assertRaises(figures.Fault):
            figures.measured_rows(part, {'bench': printed})

    def test_rows_of_google_benchmark(self):
        printed = '{"benchmarks": [{"name": "plan/4", "cpu_time": 181234.0, "time_unit": "ns"}]}'
        part = {'command': 'bench', 'table': 'benchmarks', 'rows': [['plan', '{plan/4| processor us}']]}
        self.assertEqual(figures.measured_rows(part, {'bench': printed}), [['plan', 181]])


if __name__ == '__main__':
    unittest.main()
