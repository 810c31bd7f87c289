"""What is replaced in DeepSpeed and torch while user code runs."""

import copy
import json
import os
import sys
import threading

from . import rewrites, temporary
from .patches import Patches

MAX_WRITTEN = 20


current = None  # the Hooks of the experiment that runs


def install_initialize():
    """Once: packages may keep the function that they import."""
    import deepspeed
    original = deepspeed.initialize
    if hasattr(original, "dstune_"):
        return

    def initialize(*args, **kwargs):
        if current is None:
            return original(*args, **kwargs)
        return current.initialize(original, *args, **kwargs)

    initialize.dstune_ = True
    initialize.__wrapped__, initialize.__doc__ = original, original.__doc__
    deepspeed.initialize = initialize


def read(given):
    """A configuration that was handed over as a file, or as itself."""
    if not isinstance(given, (str, os.PathLike)):
        return given
    try:
        with open(given, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


class Launch:
    """The needs of a separate launch of the same training beside the configuration."""

    def __init__(self):
        self.arguments = {}  # of TrainingArguments, that differ from the script's own
        self.are_words = True  # the script reads them from its command line
        self.lines = []  # for the script


class Hooks:
    """Installed before user code runs; remove() afterwards."""

    def __init__(self, order, steps, track, notes, written, observed):
        self.order_ = order
        self.steps_ = steps
        self.track_ = track  # called with every engine that is made, complete or not
        self.notes_ = notes
        self.initialized = False
        self.filled_config = False  # a framework filled our config in, and hands it to initialize
        self.initializing_ = False
        self.written_ = written
        self.observed_ = observed
        self.looks = rewrites.Looks(order["ds_config"])
        self.launch = Launch()
        self.trainer_steps = 0  # after which the Trainer's arguments end it; 0: nobody knows
        self.patches_ = Patches()

    def install(self):
        global current
        current = self
        rewrites.current = self.looks
        import deepspeed
        import torch
        import torch.utils.data as data
        self.patches_.wrap(torch, "save", self.save_)
        self.patches_.wrap(deepspeed.runtime.engine.DeepSpeedEngine, "__init__", self.made_)
        self.patches_.wrap(data.DataLoader, "__init__", self.loader_)

    def remove(self):
        global current
        current = rewrites.current = None
        self.patches_.undo()

    def save_(self, original, value, file, *args, **kwargs):
        self.written_.note(file)
        return original(value, file, *args, **kwargs)

    def note(self, text):
        if text not in self.notes_:
            self.notes_.append(text)

    def made_(self, original, engine, *args, **kwargs):
        self.track_(engine)
        if not self.initializing_:
            self.steps_.refuse("the script makes a DeepSpeedEngine itself, with a configuration of its own; "
                               "deepspeed.initialize takes the experiment's")
        original(engine, *args, **kwargs)

    def initialize(self, original, args=None, model=None, optimizer=None, *positional, **kwargs):
        given = [kwargs.pop(name, None) for name in ("config", "config_params")]
        given = given[0] if given[0] is not None else given[1]
        config = self.settled_(given)
        self.observed_.recompute.before(model)
        args = copy.copy(args)
        for name in ("deepspeed_config", "deepscale_config"):
            if getattr(args, name, None) is not None:
                setattr(args, name, None)
        self.initializing_ = True
        try:
            made = original(args, model, optimizer, *positional, config=config, **kwargs)
        finally:
            self.initializing_ = False
        self.initialized = True
        engine = made[0]
        self.observed_.made(engine, optimizer)
        wanted = self.order_["micro_batch"]
        if engine.train_micro_batch_size_per_gpu() != wanted:
            self.steps_.refuse(f"the engine has a micro-batch of {engine.train_micro_batch_size_per_gpu()}, "
                               f"not {wanted}: the script changes its configuration")
        # ZenFlow puts its update_interval there.
        steps = engine.gradient_accumulation_steps()
        if isinstance(steps, int) and steps != self.order_["accumulation_steps"]:
            self.steps_.refuse(f"DeepSpeed makes gradient_accumulation_steps {steps} in this configuration, where "
                               f"{self.order_['accumulation_steps']} is written; ZenFlow takes its update_interval: "
                               "write the same for both")
        self.steps_.attach(engine)
        return made

    def settled_(self, given):
        """The configuration for the engine, of what was handed to deepspeed.initialize."""
        if self.filled_config and isinstance(given, dict):
            config, notes, foreign = rewrites.settled(self.order_["ds_config"], given, self.looks)
            for note in notes:
                self.note(note)
            if foreign:
                self.steps_.refuse("the configuration that is to run was changed: " +
                                   ", ".join(f"{key} by {who}" for key, who in foreign))
        else:
            config = rewrites.fill_from(self.order_["ds_config"], read(given))
        fails, defaults = rewrites.unfilled(config)
        if fails:
            self.steps_.refuse(rewrites.unfilled_refusal(fails))
        for key in defaults:
            self.note(f'"auto" is left in the configuration at {key}, for which DeepSpeed takes its default')
        return config

    def loader_(self, original, loader, *args, **kwargs):
        """A loader's workers are processes: the main process loads instead."""
        args = list(args)
        workers = kwargs.get("num_workers", args[5] if len(args) > 5 else 0)
        if workers:
            self.note(f"a data loader asks for {workers} worker processes; it runs without them, in the rank itself")
        for place, name, value in ((5, "num_workers", 0), (9, "timeout", 0), (11, "multiprocessing_context", None)):
            if len(args) > place:
                args[place] = value
            elif name in kwargs:
                kwargs[name] = value
        if workers:
            kwargs.pop("prefetch_factor", None)
            kwargs.pop("persistent_workers", None)
        original(loader, *args, **kwargs)


class Written:
    """Files that user code writes in the main thread, by Python's audit events."""

    def __init__(self):
        self.paths_ = {}
        self.active = False
        self.thread_ = threading.get_ident()
        sys.addaudithook(self.audit_)

    def audit_(self, event, arguments):
        if not self.active or threading.get_ident() != self.thread_:
            return
        path = None
        if event == "open":
            writes = isinstance(arguments[1], str) and any(sign in arguments[1] for sign in "wax+")
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if writes or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                path = arguments[0]
        elif event in ("os.mkdir", "os.rename", "os.link", "os.symlink"):
            path = arguments[0] if event == "os.mkdir" else arguments[1]
        if isinstance(path, (str, bytes, os.PathLike)) and len(self.paths_) < 10 * MAX_WRITTEN:
            self.paths_[os.path.abspath(os.fsdecode(path))] = True

    def note(self, path):
        """What C++ writes has no audit event."""
        if self.active and isinstance(path, (str, os.PathLike)):
            self.paths_[os.path.abspath(os.fspath(path))] = True

    def start(self):
        self.paths_.clear()
        self.active = True

    def stop(self):
        self.active = False

    def paths(self):
        """Those that were written and are there still; what is a part of the system apart, and what goes by itself."""
        ours = [os.path.join(temporary.folder, name) for name in temporary.KINDS]
        ignored = ("/dev/", "/proc/", "/sys/", "/tmp/torch", *ours)
        kept = [path for path in self.paths_
                if not path.startswith(ignored) and "__pycache__" not in path and os.path.exists(path)]
        return sorted(kept)[:MAX_WRITTEN]
