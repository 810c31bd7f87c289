"""Waits until a machine is quiet, and proves that it stayed so while something was timed.

A control is a fixed piece of work, of the interpreter and of products of matrices. All ranks do it at once, and the
slowest counts. Where others use the processors, or their clocks are lower, it takes longer. What was timed counts if
the two controls before it and the one after it took as long as the fastest one. The four fastest are left out as soon
as there are some: a processor may be faster for a moment than it ever is again.
"""
import time


def own_work():
    """Some 0.1 s on one thread."""
    import torch

    one = torch.ones(192, 192)
    for _ in range(160):
        one = torch.mm(one, one) * 1e-3
    table = {}
    for number in range(120_000):
        table[number & 1023] = table.get((number * 7) & 1023, 0) + 1


class Quiet:
    """`work` is the control of a rank; `slowest` makes one number of those of all ranks, and is called by all."""

    def __init__(self, slowest, work=own_work, tolerance=0.2, limit_s=120, clock=time.perf_counter):
        self.slowest, self.work, self.clock = slowest, work, clock
        self.tolerance, self.limit_s = tolerance, limit_s
        self.controls = []
        self.waited_s = 0.0
        self.dropped = 0
        self.not_quiet = 0

    def control(self):
        begin = self.clock()
        self.work()
        self.controls.append(self.slowest(self.clock() - begin))
        return self.controls[-1]

    def fastest_s(self):
        return sorted(self.controls)[4 if len(self.controls) >= 12 else 0]

    def is_quiet(self, control_s):
        return control_s <= self.fastest_s() * (1 + self.tolerance)

    def wait(self):
        """Until two controls in a row are as fast as the fastest, or for limit_s. All ranks call it."""
        in_a_row, waited_s = 0, 0
        while in_a_row < 2 and waited_s < self.limit_s:
            control_s = self.control()
            waited_s += control_s  # the same on all ranks, unlike a clock
            in_a_row = in_a_row + 1 if self.is_quiet(control_s) else 0
        self.waited_s += waited_s

    def timed(self, measure, tries=3):
        """What `measure` returns in a quiet time, or at the last try. All ranks call it."""
        for left in reversed(range(tries)):
            self.wait()
            result = measure()
            if self.is_quiet(self.control()):
                return result
            if left > 0:
                self.dropped += 1
        self.not_quiet += 1
        return result

    def summary(self):
        return {"control_s": round(self.fastest_s() if self.controls else 0, 4), "tolerance": self.tolerance, "dropped": self.dropped,
                "not_quiet": self.not_quiet, "waited_s": round(self.waited_s, 1)}
