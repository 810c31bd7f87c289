"""Plays the program's side: ranks as processes, commands to them, groups of them."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
EXAMPLES = os.path.join(ROOT, "scripts", "spaces", "engine")
VARIABLE = os.environ.get("DSTUNE_ENGINE_VARIABLE", "DSTUNE_ENGINE_PYTHON")
PYTHON = os.environ.get(VARIABLE, "")
SKIPPED = "" if PYTHON else f"{VARIABLE} names no interpreter with torch and deepspeed"
DEADLINE_S = float(os.environ.get("DSTUNE_ENGINE_DEADLINE", "120"))


class RankDied(AssertionError):
    pass


class Rank:
    def __init__(self, world_rank, variables=None):
        self.world_rank = world_rank
        self.progress = []
        ours, theirs = [], []
        for direction in ("down", "up", "down"):
            read, write = os.pipe()
            ours.append(write if direction == "down" else read)
            theirs.append(read if direction == "down" else write)
        environment = {**os.environ, "OMPI_COMM_WORLD_LOCAL_RANK": "7", "PYTHONDONTWRITEBYTECODE": "1",
                       **(variables or {})}
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([PYTHON, os.path.join(HERE, "rank.py"), *map(str, theirs)], pass_fds=theirs,
                                        env=environment, stdin=subprocess.DEVNULL, stdout=self.errors,
                                        stderr=self.errors)
        for descriptor in theirs:
            os.close(descriptor)
        self.commands_ = os.fdopen(ours[0], "w")
        self.replies_ = ours[1]
        self.interrupts_ = os.fdopen(ours[2], "w")
        self.pending_ = b""

    def send(self, command, **members):
        self.commands_.write(json.dumps({"command": command, **members}) + "\n")
        self.commands_.flush()

    def receive(self, deadline_s=DEADLINE_S):
        """The next reply; what was told of the progress is kept."""
        end = time.monotonic() + deadline_s
        while True:
            line, newline, rest = self.pending_.partition(b"\n")
            if newline:
                self.pending_ = rest
                message = json.loads(line)
                if "event" not in message:
                    return message
                self.progress.append(message["text"])
                continue
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.replies_], [], [], left)[0]:
                raise TimeoutError(f"rank {self.world_rank} gives no answer")
            data = os.read(self.replies_, 1 << 20)
            if not data:
                self.errors.seek(0)
                raise RankDied(f"rank {self.world_rank} is gone: {self.errors.read()[-4000:]}")
            self.pending_ += data

    def interrupt(self, shutdown=True, deadline_s=60.0):
        """Interrupts the rank, every second as the program does, until its reply comes, which is returned."""
        end = time.monotonic() + deadline_s
        while True:
            self.interrupts_.write(json.dumps({"shutdown": shutdown}) + "\n")
            self.interrupts_.flush()
            try:
                return self.receive(deadline_s=1.0)
            except TimeoutError:
                if time.monotonic() > end:
                    raise

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        for one in (self.commands_, self.interrupts_):
            try:
                one.close()
            except OSError:
                pass
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()
        os.close(self.replies_)
        self.errors.close()


class World:
    """Ranks with the same workload, and experiments in groups of them."""

    def __init__(self, size, workload, model=None, **variables):
        self.ranks = [Rank(number, variables) for number in range(size)]
        self.attempt_ = 0
        for rank in self.ranks:
            rank.send("look")
        self.looks = [rank.receive() for rank in self.ranks]
        ports = sorted({port for look in self.looks for port in look["listening_ports"]})
        for rank in self.ranks:
            rank.send("prepare", workload={"type": "deepspeed", **workload}, model=model, world_rank=rank.world_rank,
                      local_rank=rank.world_rank, device="cpu", device_index=0, threads=1, imports_only=False,
                      foreign_ports=ports)
        self.prepared = [rank.receive() for rank in self.ranks]

    def begin(self, members, ds_config, arguments=(), memory_limit_bytes=0, folder="", timeout_s=60.0, seed=42,
              recompute="none", sequence_length=32, steps_hint=10, name="z", missing=(),
              own_model=None):
        """Sends "build" to the group of these ranks but `missing`; their replies are awaited elsewhere."""
        group = [self.ranks[number] for number in members]
        self.attempt_ += 1
        group[0].send("open_store")
        port = group[0].receive()["port"]
        micro = ds_config["train_micro_batch_size_per_gpu"]
        steps = ds_config.get("gradient_accumulation_steps", 1)
        others = {"own_model": own_model} if own_model else {}
        for number, rank in enumerate(group):
            if members[number] in missing:
                continue
            rank.send("build", experiment=name, attempt=self.attempt_, ds_config=ds_config, micro_batch=micro,
                      accumulation_steps=steps, global_batch=ds_config.get("train_batch_size", 0), group_rank=number,
                      group_size=len(group), group_local_rank=number, group_local_size=len(group), group_node=0,
                      group_nodes=1, store={"host": "127.0.0.1", "port": port}, timeout_s=timeout_s, backend="gloo",
                      seed=seed, sequence_length=sequence_length, recompute=recompute, steps_hint=steps_hint,
                      memory_limit_bytes=memory_limit_bytes, arguments=list(arguments), folder=folder,
                      **others)
        return group

    @staticmethod
    def ask(group, command, **members):
        for rank in group:
            rank.send(command, **members)
        return [World.last_step(rank.receive()) for rank in group]

    @staticmethod
    def last_step(reply):
        """A reply to "step" with the members of its last step."""
        return {**reply, **reply["steps"][-1]} if reply.get("steps") else reply

    def experiment(self, members, ds_config, steps=3, **others):
        """Builds, steps and ends; returns {build, steps, end}, each a list over the ranks."""
        return self.finish(self.begin(members, ds_config, **others), steps)

    def finish(self, group, steps=3):
        result = {"build": [rank.receive() for rank in group], "steps": []}
        ok = all(reply["ok"] for reply in result["build"])
        for number in range(steps if ok else 0):
            result["steps"].append(self.ask(group, "step", number=number + 1))
            ok = all(reply["ok"] for reply in result["steps"][-1])
            if not ok:
                break
        result["end"] = self.ask(group, "end", failed=not ok)
        return result

    def close(self):
        for rank in self.ranks:
            rank.close()


def losses(result, rank=None):
    """Mean losses over the ranks, a step each; or those of one rank."""
    if rank is not None:
        return [step[rank]["loss"] for step in result["steps"]]
    return [sum(reply["loss"] for reply in step) / len(step) for step in result["steps"]]


def config(stage=0, micro=2, accumulation=1, **others):
    """A configuration that needs no operator on CPUs."""
    return {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": accumulation,
            "zero_optimization": {"stage": stage, **others.pop("zero", {})},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}, **others}


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


@unittest.skipIf(SKIPPED, SKIPPED)
class EngineTest(unittest.TestCase):
    """A test class with one world for all its tests: `size`, `workload()`."""

    size = 2

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="engine_test_")
        cls.world = World(cls.size, **cls.workload())
        for reply in cls.world.prepared:
            assert reply["ok"], reply

    @classmethod
    def tearDownClass(cls):
        cls.world.close()
        import shutil
        shutil.rmtree(cls.folder, ignore_errors=True)

    def assertOk(self, result):
        for part in [result["build"], *result["steps"], result["end"]]:
            for reply in part:
                self.assertTrue(reply["ok"], json.dumps(reply, indent=1).replace("\\n", "\n"))
        for reply in result["end"]:
            self.assertEqual(reply["leaked"], [])

    def assertFails(self, result, kind, text, rank=0):
        replies = result["steps"][-1] if result["steps"] else result["build"]
        self.assertFalse(replies[rank]["ok"], replies[rank])
        error = replies[rank]["error"]
        self.assertEqual(error["kind"], kind, error["message"] + "\n" + error["traceback"])
        self.assertIn(text, error["message"])
        return error


def main():
    sys.path.insert(0, HERE)
    unittest.main()
