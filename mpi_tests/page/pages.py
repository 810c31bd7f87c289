"""Pages for the browser: the template of report.html, filled with data that is made here.

The data has the form of report.json (docs/fields.md). Its texts are hostile: what ends scripts, what is HTML,
very long names, letters of many alphabets.
"""

import json
import os
import random
import re

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SOURCES = os.path.join(ROOT, "src", "report", "page")
DATA_BLOCK = re.compile(r'(<script type="application/json" id="report-data">)(.*?)(</script>)', re.S)

GIB = 2**30
HOSTILE = ["</script><script>document.title='taken'</script>",
           "<b>bold</b> & <img src=x onerror=document.title='taken'>",
           "a/very/long/path/" + "without_any_space_" * 18 + "end", "größer ≥ 10⁹, 数据, עברית, 🚀 'quoted' \"twice\"",
           "<!-- <script>", "${7*7} {{7*7}} @SCRIPT@"]
STATUSES = ["ok", "raced_out", "out_of_memory", "timed_out", "failed", "infeasible", "pruned", "not_run"]
COLUMNS = ["name", "status", "reason", "value", "ci_low", "ci_high", "measured", "verified", "predicted", "num_gpus",
           "stage", "micro_batch", "accumulation", "recompute", "memory_bytes", "predicted_memory_bytes",
           "target_memory_bytes", "joules_per_sample", "probability_best", "finished_at_s", "keys"]
CATEGORIES = ["parameters", "gradients", "optimizer_states", "activations", "buckets", "workspace"]


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def template():
    """report.html as the program has it, without data: @DATA@ stands in its place."""
    scripts = re.findall(r"report/page/(js/\w+\.js)", read(ROOT, "src", "CMakeLists.txt"))
    assert scripts, "src/CMakeLists.txt names no script"
    page = read(SOURCES, "page.html.in")
    for name, text in (("STYLE", read(SOURCES, "page.css")),
                       ("SCRIPT", "".join(read(SOURCES, script) for script in scripts))):
        page = page.replace(f"@{name}@", text, 1)
    return page


def filled(page, data):
    """The page with this data, be it the template or a report.html that has other data."""
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    if DATA_BLOCK.search(page) is None:
        raise AssertionError("the page has no data block")
    return DATA_BLOCK.sub(lambda match: match[1] + text + match[3], page, count=1)


def key(pointer, values, is_config=True, is_derived=False):
    dotted = pointer.lstrip("/").replace("/", ".")
    return {"pointer": pointer, "label": dotted, "column": dotted, "is_config": is_config, "is_derived": is_derived,
            "values": values}


KEYS = [
    key("/zero_optimization/stage", [0, 1, 2, 3]),
    key("/train_micro_batch_size_per_gpu", [1, 2, 4, 8, 16, 32]),
    key("/gradient_accumulation_steps", [1, 2, 4]),
    key("/zero_optimization/reduce_bucket_size", [5e7, 2e8, 5e8]),
    key("/zero_optimization/overlap_comm", [True, False]),
    key("/zero_optimization/offload_optimizer/device", ["none", "cpu"]),
    key("num_gpus", [2, 4, 8], is_config=False),
    key("recompute", ["none", "block"], is_config=False),
    key("/train_batch_size", [2 ** place for place in range(0, 12)], is_derived=True),
]


def empty():
    """A job whose space has no members."""
    return {
        "format": 1, "written_by": "dstune-mpi 0.9.0",
        "state": {"is_running": False, "phase": "done", "as_of": "2026-11-29T14:31:05.123456Z",
                  "began_at": "2026-11-29T13:59:00.000000Z", "elapsed_s": 1925.0, "done": 0, "running": 0, "left": None,
                  "time_limit_s": None, "reason": ""},
        "metric": {"name": "throughput", "unit": "samples/s", "is_minimised": False, "has_target": False,
                   "source": "dstune-mpi's own step"},
        "answer": None, "model": None,
        "machine": {"text": "8 ranks on 1 host (node-17): NVIDIA A100-SXM4-80GB", "ranks": 8, "hosts": ["node-17"],
                    "device": "NVIDIA A100-SXM4-80GB", "conduct": ""},
        "deepspeed": None, "environment": {}, "notes": [], "counts": [], "reasons": [], "keys": [], "common_config": {},
        "columns": COLUMNS, "members": [], "statuses": STATUSES, "texts": [], "memory_limit_bytes": None,
        "memory_categories": [], "memory_of": [], "front": [], "runs": [],
    }


class Maker:
    """Members with values that depend on their knobs as a training's would."""

    def __init__(self, size, seed, share_run, fails):
        self.random = random.Random(seed)
        self.data = empty()
        self.data["keys"] = KEYS
        self.data["texts"] = [f"reason {place}: {text}" for place, text in enumerate(HOSTILE)]
        self.clock_s = 3.0
        self.free_at = [3.0] * 8
        self.pause_every = max(61, size // 4)
        combinations = 1
        for one in KEYS[:-1]:
            combinations *= len(one["values"])
        for place in self.random.sample(range(combinations), min(size, combinations)):
            self.add(place, share_run, fails)
        # More members than combinations differ in a name alone.
        while len(self.data["members"]) < size:
            self.add(self.random.randrange(combinations), share_run, fails)

    def add(self, place, share_run, fails):
        choice = []
        for one in KEYS[:-1]:
            place, index = divmod(place, len(one["values"]))
            choice.append(index)
        stage, micro, accumulation, bucket, overlap, offload, gpus, recompute = (
            one["values"][index] for one, index in zip(KEYS, choice))
        number = len(self.data["members"])
        name = f"z{stage}_gas{accumulation}_tmbspg{micro}_rbs{bucket:g}_oc{int(overlap)}_ng{gpus}_ar{recompute}"
        if number in (3, 7, 11, 19, 23, 31):
            name += HOSTILE[(3, 7, 11, 19, 23, 31).index(number)]
        elif number > 300 and number % 7 == 0:
            name += f"_{number}"
        if choice[5] == 0:
            choice[5] = None
        memory = int(GIB * (24 / gpus ** (stage / 3) + 1.4 * micro * (0.45 if recompute == "block" else 1)))
        speed = gpus * 30 * micro / (micro + 3.5) * (1 - 0.04 * stage) * (1.06 if overlap else 1) * (
            0.8 if recompute == "block" else 1) * (1 - 0.02 / accumulation) * (0.7 if choice[5] else 1)
        value = speed * self.random.gauss(1, 0.015)
        took = self.random.uniform(2, 5)
        status, reason = "ok", None
        if memory > 62 * GIB:
            status, reason = "infeasible", 0
        elif self.random.random() > share_run:
            status, reason = "pruned", 2
        elif fails and (fails == "all" or memory > 52 * GIB or self.random.random() < 0.06):
            status = "out_of_memory" if memory > 52 * GIB else self.random.choice(["failed", "timed_out"])
            reason = 1 + number % 5
        elif self.random.random() < 0.25:
            status, reason = "raced_out", 3
        ran = status not in ("infeasible", "pruned")
        has_value = status == "ok"
        finished = None
        if ran:
            first = min(range(0, 8, gpus), key=lambda rank: max(self.free_at[rank:rank + gpus]))
            start = max(self.free_at[first:first + gpus])
            if number and number % self.pause_every == 0:
                start = max(self.free_at) + 4000.0 + number  # another job, much later
                self.free_at = [start] * 8
            finished = start + took
            ranks = list(range(first, first + gpus))
            for rank in ranks:
                self.free_at[rank] = finished + 0.2
            self.data["runs"].append([number, 0, start, finished, ranks, status in ("ok", "raced_out")])
        batch = KEYS[-1]["values"].index(min(2048, 2 ** (micro * accumulation * gpus).bit_length() // 2))
        self.data["members"].append([
            name, STATUSES.index(status), reason, value if has_value else None,
            value * 0.985 if has_value else None, value * 1.015 if has_value else None, None,
            value * self.random.gauss(0.97, 0.01) if has_value and number % 9 == 0 else None,
            speed * self.random.gauss(1, 0.06), gpus, stage, micro, accumulation, recompute,
            int(memory * self.random.gauss(1, 0.02)) if has_value else 0, memory, memory + 2 * GIB,
            12.5 / value * 100 if has_value and number % 2 else None, None, finished, choice + [batch]])


def finish(data):
    """All that follows from the members: counts, reasons, the answer, the front, memory by category."""
    members = data["members"]
    of_status = {}
    for row in members:
        of_status.setdefault(STATUSES[row[1]], []).append(row)
    data["counts"] = [{"status": status, "count": len(of_status.get(status, []))} for status in STATUSES]
    groups = {}
    for row in members:
        if row[2] is not None:
            groups.setdefault((row[1], row[2]), []).append(row[0])
    data["reasons"] = [{"status": STATUSES[status], "reason": data["texts"][reason], "count": len(names),
                        "names": names[:3]}
                       for (status, reason), names in groups.items()]
    data["state"]["done"] = sum(len(rows) for status, rows in of_status.items()
                                if status not in ("infeasible", "pruned", "not_run"))
    data["model"] = {"name": "gpt2-xl", "text": "1.56 billion parameters, all trainable; 48 layers of width 1600"}
    data["deepspeed"] = {"version": "0.19.8", "source": "the newest that is known"}
    data["environment"] = {"hosts": ["node-17"], "variables": {"PATH": HOSTILE[2], "NOTE": HOSTILE[0]}}
    data["notes"] = ["Runs differ by 0.6 %, drift by 0.4 %.", f"The script writes to {HOSTILE[2]}."]
    data["common_config"] = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
                             "zero_optimization": {"contiguous_gradients": True}}
    data["memory_limit_bytes"] = 64 * GIB
    data["memory_categories"] = CATEGORIES
    order = sorted((place for place, row in enumerate(members) if row[3] is not None),
                   key=lambda place: -members[place][3])
    if not order:
        return data
    shares = [0.2, 0.1, 0.3, 0.3, 0.06, 0.04]
    data["memory_of"] = [[place] + [int(members[place][14] * share) for share in shares] for place in order[:20]]
    best_of = []
    for place in order:
        row = members[place]
        is_beaten = any(members[other][9] <= row[9] and members[other][14] <= row[14] for other in best_of)
        if not is_beaten:
            best_of.append(place)
        data["front"].append([place, row[3], row[9], row[14], not is_beaten, row[3] / row[9]])
    best = order[0]
    row = members[best]
    end = max(run[3] for run in data["runs"])
    for turn in range(3):
        for place in order[:2]:
            ranks = list(range(members[place][9]))
            data["runs"].append([place, 2, end + 1, end + 5, ranks, True])
            end += 5
    data["runs"].append([best, 1, end + 1, end + 4, list(range(row[9])), True])
    data["runs"] = data["runs"][-5000:]
    points = [[3 * step] + [int(GIB * amount) for amount in (
        3, 1.5 * min(1, step / 60), 6, 12 * (1 - abs(step - 40) / 40) if step < 80 else 0, 0.5, 0.2 + 0.1 * (step % 3))]
        for step in range(100)]
    baseline = next((place for place, one in enumerate(members) if one[3] is not None), best)
    share = row[3] / members[baseline][3] - 1
    data["answer"] = {
        "member": best, "name": row[0], "value": row[3], "ci_low": row[4], "ci_high": row[5], "label": "calibrated",
        "label_words": "measured with dstune-mpi's own step, and fitted to your own runs",
        "gain": {"baseline": members[baseline][0], "baseline_member": baseline, "baseline_value": members[baseline][3],
                 "share": share, "text": f"{1 + share:.2f} times as fast as the baseline {members[baseline][0]}"},
        "cost": {"gpu_hours": 4.27, "elapsed_s": 1925.0, "earlier_jobs": 1, "earned_back_steps": 2300,
                 "text": "32 m 5 s, 4.27 GPU-hours; earned back after 2,300 optimizer steps with it"},
        "num_gpus": row[9], "num_nodes": 1, "num_gpus_per_node": row[9], "sequence_length": 1024,
        "probability_best": 0.93, "chance_of_better": 0.021,
        "details": [["measured again", "3 times, alone, in turns; 2 finalists"], ["hostile", HOSTILE[1]]],
        "ds_config": {"train_micro_batch_size_per_gpu": row[11], "bf16": {"enabled": True},
                      "zero_optimization": {"stage": row[10]}, "note": HOSTILE[0]},
        "command": "deepspeed --num_gpus 8 train.py --deepspeed_config ds_config_optimal.json --data " + HOSTILE[2],
        "memory": {"limit_bytes": 64 * GIB, "unit": "bytes", "axis": "operations of a step, in program order",
                   "num_operations": 300, "categories": CATEGORIES, "points": points,
                   "parts": [[0, "micro-step 1", "forward"], [120, "micro-step 1", "backward"], [240, "update", ""]],
                   "host_points": [[3 * step, 0, 0, GIB if step > 70 else GIB // 2, 0, 0, 0] for step in range(100)]},
    }
    return data


def synthetic(size, seed=1, share_run=0.8, fails="some"):
    return finish(Maker(size, seed, share_run, fails).data)


def running(size=60):
    """The same job in the middle of its search."""
    data = synthetic(size)
    for row in data["members"][size // 2:]:
        row[1:9] = [STATUSES.index("not_run"), None, None, None, None, None, None, row[8]]
        row[14], row[17], row[19] = 0, None, None
    data = finish(data | {"answer": None, "front": [], "runs": [run for run in data["runs"] if run[0] < size // 2]})
    data["state"] |= {"is_running": True, "phase": "search", "running": 2,
                      "left": {"seconds": 150, "low_s": 110, "high_s": 200,
                               "assumes": "12 more experiments of 2 s, 2 at once"}}
    return data


def running_without_answer():
    data = empty()
    data["state"] |= {"is_running": True, "phase": "profiling"}
    data["members"] = [[f"z0_gas1_tmbspg{size}", STATUSES.index("not_run"), None] + [None] * 6 +
                       [8, 0, size, 1, "none", 0, GIB * size, 0, None, None, None, []] for size in (1, 2, 4)]
    data["counts"] = [{"status": "not_run", "count": 3}]
    return data


def one_member():
    return next(data for data in (synthetic(1, seed, share_run=1, fails="") for seed in range(99)) if data["answer"])


def all_failed(size=24):
    return synthetic(size, share_run=1, fails="all")
