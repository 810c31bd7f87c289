"""Many engines in one job, in changing groups: everything goes, each time. A killed rank, too.

DSTUNE_ENGINE_COUNT: how many engines (default 64).
DSTUNE_ENGINE_HIDDEN: a model with so wide a layer; 16 bytes of states for its square (default: a tiny model).
With as many engines as it takes, the steps of the last 20 pairs at stage 3 are compared with those of the first 20.
"""

import glob
import math
import os
import statistics
import unittest

from harness import HERE, SKIPPED, World, config, main

COUNT = int(os.environ.get("DSTUNE_ENGINE_COUNT", "64"))
HIDDEN = os.environ.get("DSTUNE_ENGINE_HIDDEN", "")
COMPARED = 20
# Ranks of the groups that run at the same time.
SHAPES = [[(0, 1), (2, 3)], [(0, 1, 2, 3)], [(0,), (1, 2, 3)], [(0, 2), (1, 3)]]


def shared_files():
    """Of /dev/shm, but for those of MPI jobs that run beside this."""
    return {path for path in glob.glob("/dev/shm/*")
            if not os.path.basename(path).startswith(("vader_segment", "osc_rdma", "dstune-board-"))}


def slope(values):
    """Least squares, a value an engine."""
    middle = (len(values) - 1) / 2
    mean = statistics.fmean(values)
    return (sum((place - middle) * (value - mean) for place, value in enumerate(values))
            / sum((place - middle) ** 2 for place in range(len(values))))


@unittest.skipIf(SKIPPED, SKIPPED)
class ManyTest(unittest.TestCase):
    def print_compared(self, step_s):
        """Whether steps of one configuration get slower. That is a figure and no test: machines are noisy."""
        first, last = step_s[:COMPARED], step_s[-COMPARED:]
        if len(step_s) < 2 * COMPARED:
            return
        before, after = statistics.median(first), statistics.median(last)
        # Of a median: 1.25 times that of a mean.
        error = 1.25 * math.hypot(*(statistics.stdev(part) / math.sqrt(len(part)) for part in (first, last)))
        print(f"a step of the first {COMPARED} of {len(step_s)} pairs at stage 3: {before:.4f} s (median), of the last: "
              f"{after:.4f} s, {100 * (after / before - 1):+.1f} %; two standard errors are {200 * error / before:.1f} %")

    def setUp(self):
        self.world = World(4, {"script": os.path.join(HERE, "cases.py")})
        self.addCleanup(self.world.close)

    def begin(self, members, stage, *words):
        return self.world.begin(members, config(stage), arguments=[*words, "--deepspeed_config", "$CONFIG"])

    def test_many_engines_leave_nothing(self):
        shared = shared_files()
        seen = {rank: [] for rank in range(4)}
        words = ["--hidden", HIDDEN] if HIDDEN else []
        step_s = []
        done, number, of_stage_3 = 0, 0, 0
        while done < COUNT:
            shape = SHAPES[number % len(SHAPES)]
            stage = (3, 0, 3, 1, 2, 3)[number % 6]
            groups = [(members, self.begin(members, stage, *words)) for members in shape]
            of_stage_3 += len(shape) if stage == 3 else 0
            for members, group in groups:
                result = self.world.finish(group, steps=4)
                for part in [result["build"], *result["steps"], result["end"]]:
                    self.assertTrue(all(reply["ok"] for reply in part), part)
                for rank, reply in zip(members, result["end"]):
                    self.assertEqual(reply["leaked"], [])
                    seen[rank].append((reply["threads"], reply["descriptors"], reply["resident_bytes"]))
                if len(members) == 2 and stage == 3:
                    step_s.append(max(reply["step_s"] for reply in result["steps"][-1]))
                done += 1
            number += 1
        print(f"{done} engines, {of_stage_3} at stage 3")
        self.assertEqual(shared_files() - shared, set())
        for rank, values in seen.items():
            settled = values[len(values) // 4:]
            self.assertEqual(len({value[:2] for value in settled}), 1, f"threads, descriptors of rank {rank}: {settled}")
            grows = slope([value[2] for value in settled]) / 2**20
            print(f"rank {rank}: {len(values)} engines, {settled[0][:2]} threads and descriptors, "
                  f"{grows:.3f} MiB an engine")
            self.assertLess(grows, 1.0)
        self.print_compared(step_s)

    def test_a_killed_rank_costs_its_group_alone(self):
        pairs = [self.begin((0, 1), 3), self.begin((2, 3), 3)]
        for group in pairs:
            for rank in group:
                self.assertTrue(rank.receive()["ok"])
            self.world.ask(group, "step", number=1)
        pairs[0][1].kill()
        pairs[0][0].send("step", number=2)
        self.assertFalse(pairs[0][0].receive()["ok"])
        self.assertTrue(all(reply["ok"] for reply in self.world.ask(pairs[1], "step", number=2)))
        self.assertTrue(self.world.ask(pairs[1], "end", failed=False)[0]["ok"])
        self.assertTrue(self.world.ask(pairs[0][:1], "end", failed=True)[0]["ok"])
        result = self.world.finish(self.begin((0, 2, 3), 2))
        self.assertTrue(all(reply["ok"] for reply in result["steps"][-1]))


if __name__ == "__main__":
    main()
