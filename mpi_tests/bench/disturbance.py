"""A load beside which others measure: one core is taken and freed, now one, now another."""

import contextlib
import multiprocessing
import os
import random
import time


def disturb(seed, busy_s, free_s):
    """Loads one core after the other until it is ended. Both are ranges."""
    random.seed(seed)
    cores = sorted(os.sched_getaffinity(0))
    while True:
        os.sched_setaffinity(0, {random.choice(cores)})
        end = time.monotonic() + random.uniform(*busy_s)
        while time.monotonic() < end:
            pass
        time.sleep(random.uniform(*free_s))


@contextlib.contextmanager
def disturbance(seed, busy_s=(2, 6), free_s=(2, 6)):
    load = multiprocessing.Process(target=disturb, args=(seed, busy_s, free_s), daemon=True)
    load.start()
    try:
        yield
    finally:
        load.terminate()
        load.join()
