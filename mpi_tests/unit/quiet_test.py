"""The recorder's wait for a quiet machine: what it keeps, and what it drops."""
import itertools
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/tools"))
import quiet  # noqa: E402


class Controls:
    """Controls that take so long, the last one for ever; a measurement has the next of `results`."""

    def __init__(self, seconds, **options):
        self.seconds = itertools.chain(seconds, itertools.repeat(seconds[-1]))
        self.now = 0.0
        self.measured = 0
        self.quiet = quiet.Quiet(lambda own_s: own_s, self.work, clock=lambda: self.now, **options)

    def work(self):
        self.now += next(self.seconds)

    def measure(self):
        self.measured += 1
        return self.measured


class QuietTest(unittest.TestCase):
    def test_a_quiet_machine_costs_three_controls(self):
        controls = Controls([1.0, 1.01, 1.02])
        self.assertEqual(controls.quiet.timed(controls.measure), 1)
        self.assertAlmostEqual(controls.now, 3.03)
        self.assertEqual(controls.quiet.dropped, 0)

    def test_it_waits_until_two_controls_agree(self):
        controls = Controls([1.0, 1.0, 1.0, 1.5, 1.0, 1.6, 1.0, 1.0, 1.0])
        controls.quiet.timed(controls.measure)
        self.assertEqual(controls.quiet.timed(controls.measure), 2)
        self.assertAlmostEqual(controls.quiet.summary()["waited_s"], 2 + 1.5 + 1 + 1.6 + 1 + 1, 1)

    def test_what_was_disturbed_is_measured_again(self):
        controls = Controls([1.0, 1.0, 1.4, 1.0, 1.0, 1.0])
        self.assertEqual(controls.quiet.timed(controls.measure), 2, "the control after the first one was slow")
        self.assertEqual(controls.quiet.summary()["dropped"], 1)
        self.assertEqual(controls.quiet.summary()["not_quiet"], 0)

    def test_a_machine_that_is_never_quiet_is_told_of(self):
        controls = Controls([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0], limit_s=20)
        for _ in range(2):
            controls.quiet.timed(controls.measure)
        self.assertEqual(controls.quiet.timed(controls.measure), 5, "the last try counts")
        self.assertEqual(controls.quiet.summary()["not_quiet"], 1)
        self.assertEqual(controls.quiet.summary()["dropped"], 2)

    def test_a_slow_beginning_does_not_become_the_measure(self):
        controls = Controls([1.5, 1.5, 1.0, 1.0, 1.0, 1.0])
        controls.quiet.timed(controls.measure)
        controls.quiet.timed(controls.measure)
        self.assertEqual(controls.quiet.fastest_s(), 1.0)

    def test_a_moment_that_was_faster_than_ever_again_is_forgotten(self):
        controls = Controls([1.0] * 8 + [0.7] * 3 + [1.0], limit_s=60)
        for _ in range(6):
            controls.quiet.timed(controls.measure)
        self.assertEqual(controls.quiet.fastest_s(), 1.0)
        self.assertEqual(controls.quiet.not_quiet, 0)
        self.assertLessEqual(controls.quiet.dropped, 2)


if __name__ == "__main__":
    unittest.main()
