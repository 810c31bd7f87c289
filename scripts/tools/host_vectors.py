#!/usr/bin/env python3
"""What DeepSpeed makes of hostfiles and of --include/--exclude, as test vectors.

Run where the released package is installed:

    python scripts/tools/host_vectors.py mpi_tests/unit/space/host_vectors.json
"""

import json
import logging
import sys

import deepspeed
from deepspeed.launcher import runner

HOSTFILES = [
    "worker-0 slots=4\nworker-1 slots=4\n",
    "worker-1 slots=2\nworker-0 slots=8",
    "# comment\n\n  worker-0   slots=3  \n\t\nworker-1\tslots=1\n",
    "worker-0 slots=16 # with a comment\n",
    "worker-0 slots=4\r\nworker-1 slots=4\r\n",
    "worker-0 slots=4 max_slots=8\n",
    "node1.cluster.local slots=2\n10.0.0.1 slots=2\n",
    "a slots=1\nb slots=1\nc slots=1\nd slots=1\n",
    "worker-0 slots=007\n",
    "worker-0 slots=4\nworker-0 slots=4\n",
    "worker-0 slots=4\nworker-1 slots=4\nworker-0 slots=2\n",
    "",
    "# nothing but a comment\n",
    "worker-0\n",
    "worker-0:4\n",
    "worker-0 slots=\n",
    "worker-0 slots=four\n",
    "worker-0 slots=-4\n",
    "worker-0 slot=4\n",
    "slots=4\n",
    "worker-0 4\n",
    "worker-0 slots=0\n",
    "worker-0 slots = 4\n",
    "worker-0 slots=4x\n",
    "worker-0 slots=4, max_slots=8\n",
    "worker-0 slots=2.5\n",
    "worker-0 slots=99999999999\n",
    "worker-0 slots=4 gpus=4\n",
]

POOLS = [
    {"worker-0": [0, 1, 2, 3], "worker-1": [0, 1, 2, 3]},
    {"worker-1": [0, 1], "worker-0": [0, 1, 2, 3, 4, 5, 6, 7], "worker-2": [0]},
]

SPECS = [
    "worker-0",
    "worker-1",
    "worker-0@worker-1",
    "worker-1@worker-0",
    "worker-0:0",
    "worker-0:1,3",
    "worker-0:3,1",
    "worker-0:0,1,2,3",
    "worker-0:0,0,1",
    "worker-0@worker-1:0",
    "worker-1:0,1@worker-0:2",
    "worker-0:0@worker-0:2",
    "worker-0@worker-0:1",
    "worker-0:1@worker-0",
    "worker-0:0@worker-1:0@worker-0:0",
    "worker-0: 0, 2",
    "worker-0:00,02",
    "worker-1:0,1",
    "worker-1:0,1,2,3",
    "worker-0:0,1,2,3@worker-1:0,1,2,3",
    "worker-0@worker-1@worker-2",
    "worker-2",
    "worker-9",
    "worker-9:0",
    "worker-0:8",
    "worker-0:4",
    "worker-0:-1",
    "worker-0:0-2",
    "worker-0:x",
    "worker-0:",
    "worker-0:0,",
    "worker-0:,0",
    "worker-0:0:1",
    "@",
    "@worker-0",
    "worker-0@",
    "worker-0@@worker-1",
    ":0",
    " worker-0",
    "worker-0 ",
    "worker-0:99999999999999999999",
]


def hostfile_vector(text):
    try:
        hosts = runner._parse_hostfile(text.splitlines(keepends=True))
    except ValueError:
        return {"text": text, "hosts": None}
    return {"text": text, "hosts": [[name, slots] for name, slots in hosts.items()]}


def filter_vector(pool, include, exclude):
    vector = {"pool": [[name, slots] for name, slots in pool.items()], "include": include, "exclude": exclude}
    try:
        left = runner.parse_resource_filter(pool, include_str=include, exclude_str=exclude)
    except ValueError:
        return {**vector, "left": None}
    return {**vector, "left": [[name, slots] for name, slots in left.items()]}


def rows(vectors):
    return ",\n".join("  " + json.dumps(vector) for vector in vectors)


def main():
    logging.disable(logging.CRITICAL)
    filters = [filter_vector(pool, spec, "") for pool in POOLS for spec in SPECS]
    filters += [filter_vector(pool, "", spec) for pool in POOLS for spec in SPECS]
    filters += [filter_vector(POOLS[0], "worker-0", "worker-1")]
    made_by = f"scripts/tools/host_vectors.py with DeepSpeed {deepspeed.__version__}; null: refused"
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(f'{{\n "made_by": {json.dumps(made_by)},\n')
        out.write(f' "hostfiles": [\n{rows([hostfile_vector(text) for text in HOSTFILES])}\n ],\n')
        out.write(f' "filters": [\n{rows(filters)}\n ]\n}}\n')


if __name__ == "__main__":
    main()
