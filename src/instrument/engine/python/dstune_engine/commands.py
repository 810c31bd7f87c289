"""The program's commands to this rank, and the loop that answers them."""

import gc
import os
import sys

from . import errors, groups, operators, output, process_state, prepare, script
from .experiment import Experiment
from .hooks import Written
from .module_state import ModuleState
from .rerun import Losses


class Job:
    """What lives as long as the process."""

    def __init__(self, channel):
        self.channel = channel
        self.output = None
        self.state = ModuleState()
        self.stores = groups.Stores()
        self.losses = Losses()
        self.written = None
        self.wrote = set()
        self.told_ = set()
        self.prepared = None
        self.experiment = None

    def only_new(self, notes):
        """Notes are told once a job."""
        new = [note for note in notes if note not in self.told_]
        self.told_.update(new)
        return new

    def serve(self):
        """Answers commands until the program ends, which does not return."""
        reply = None
        while True:
            command = self.channel.exchange(reply)
            while command is not None:
                reply, command = self.answer_(command)

    def answer_(self, command):
        """(reply, None), or (None, a further command that came while the first one was running)."""
        try:
            return getattr(self, "do_" + command["command"])(command)
        except BaseException as error:
            self.channel.closed_to_interrupts()
            told = errors.describe(error, self.output.text() if self.output else "")
            errors.forget_frames(error)
            return {"ok": False, "error": told}, None

    def do_look(self, _):
        return {"ok": True, "python": sys.version.split()[0], "executable": sys.executable, "prefix": sys.prefix,
                "listening_ports": process_state.listening_ports()}, None

    def do_prepare(self, command):
        self.output = self.output or output.capture()
        process_state.own_working_folder()
        self.channel.open_to_interrupts()
        told = prepare.prepare(command, self.channel, self.state)
        self.channel.closed_to_interrupts()
        self.prepared = command
        self.written = self.written or Written()
        self.output.clear()
        self.state.restore()  # finds the caches before the objects of the imports are set aside
        gc.collect()
        gc.freeze()
        return {"ok": True, **told, "resident_bytes": process_state.resident_bytes()}, None

    def do_operators(self, command):
        """The operators that DeepSpeed would load for each configuration, and those that are not there."""
        has_own = bool(self.prepared) and script.hands_optimizer(self.prepared["workload"])
        needed = [operators.needed(config, has_own) for config in command["configs"]]
        available = set(operators.survey()["available"])
        broken = operators.unloadable(available.intersection(sum(needed, [])))
        available -= set(broken)
        lacking = [[name for name in names if name not in available] for names in needed]
        return {"ok": True, "needed": needed, "lacking": lacking,
                "broken": {name: reason for name, (reason, _) in broken.items()},
                "mends": {name: command for name, (_, command) in broken.items()}}, None

    def do_open_store(self, _):
        return {"ok": True, "port": self.stores.open()}, None

    def do_build(self, command):
        if self.prepared is None:
            raise errors.Refused("build came before prepare")
        self.experiment = Experiment(command, self)
        return self.experiment.run()

    def do_step(self, _):
        raise errors.Refused("step came without an experiment")

    def do_end(self, command):
        experiment, self.experiment = self.experiment, None
        if experiment is None:
            self.stores.close()
            return {"ok": True, "leaked": [], "resident_bytes": process_state.resident_bytes(),
                    "threads": process_state.threads(), "descriptors": process_state.descriptors(),
                    "wrote": [], "notes": []}, None
        return experiment.finish(bool(command.get("failed"))), None

    def do_quit(self, _):
        return {"ok": True}, None
