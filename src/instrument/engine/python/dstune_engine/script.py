"""The user's script, run unchanged in the main thread: `python script.py arguments` without a process."""

import ast
import hashlib
import json
import os
import re
import sys
import types

from . import temporary
from .errors import Refused

LOCAL_RANK = re.compile(r"""add_argument\(\s*["']--local[_-]rank""")


def module_files(script):
    """The script and the user's modules that it imports, found without running anything."""
    folder = os.path.dirname(script)
    found, waiting = [], [script]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read(), path)
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                names = [base] + [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
            near = os.path.dirname(path) if getattr(node, "level", 0) else folder
            for name in filter(None, names):
                parts = name.split(".")
                for count in range(1, len(parts) + 1):
                    place = os.path.join(near, *parts[:count])
                    waiting += [one for one in (place + ".py", os.path.join(place, "__init__.py"))
                                if os.path.isfile(one)]
    return found


def hash_of(files):
    whole = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb") as file:
            whole.update(hashlib.sha256(file.read()).digest())
    return whole.hexdigest()


def imports_any(files, packages):
    """Does one of the files import one of the packages?"""
    pattern = re.compile(r"^\s*(?:from|import)\s+(?:" + "|".join(packages) + r")\b", re.MULTILINE)
    return any(pattern.search(text_of(path)) for path in files)


def hands_optimizer(workload):
    """Does the script hand an optimizer of its own to deepspeed.initialize? Found without running it."""
    if not workload.get("script"):
        return False
    for path in module_files(workload["script"]):
        try:
            tree = ast.parse(text_of(path))
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "initialize" and (len(node.args) > 2 or any(
                    one.arg == "optimizer" or one.arg is None for one in node.keywords)):
                return True
    return False


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class ConfigFile:
    """The experiment's configuration as a file of this rank, for scripts that read it themselves."""

    def __init__(self, ds_config):
        self.folder_ = temporary.make("dstune-config-")
        self.path = os.path.join(self.folder_, "ds_config.json")
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(ds_config, file, indent=2)

    def remove(self):
        temporary.remove(self.folder_)


def arguments_with(arguments, config_path):
    """`$CONFIG`, and what follows --deepspeed_config or --deepspeed, become the experiment's file."""
    result, replace_next = [], False
    for word in arguments:
        name, equals, value = word.partition("=")
        if replace_next and not word.startswith("-"):
            word = config_path
        elif "$CONFIG" in word:
            word = word.replace("$CONFIG", config_path)
        elif equals and name in ("--deepspeed_config", "--deepspeed") and value.endswith((".json", ".hjson")):
            word = f"{name}={config_path}"
        replace_next = word in ("--deepspeed_config", "--deepspeed-config")
        if word == "--deepspeed":  # a switch for some scripts, a file's name for others
            at = len(result) + 1
            replace_next = at < len(arguments) and arguments[at].endswith((".json", ".hjson"))
        result.append(word)
    return result


def with_local_rank(script, arguments, local_rank):
    """The launcher `deepspeed` hands --local_rank to scripts; one that declares it gets it."""
    given = any(word.startswith(("--local_rank", "--local-rank")) for word in arguments)
    if given or not any(LOCAL_RANK.search(text_of(path)) for path in module_files(script)):
        return arguments
    return [f"--local_rank={local_rank}", *arguments]


def run(script, arguments):
    """Runs the script as __main__ until it ends, or something unwinds it."""
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    module = types.ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    finally:
        forget(module)


def load(script):
    """The script as a module, for a function of it."""
    sys.path.insert(0, os.path.dirname(script))
    name = os.path.splitext(os.path.basename(script))[0]
    module = types.ModuleType(name)
    module.__file__ = script
    sys.modules[name] = module
    with open(script, "rb") as file:
        exec(compile(file.read(), script, "exec", dont_inherit=True), module.__dict__)
    return module


def forget(module):
    """Globals of a script hold its model."""
    names = vars(module)
    for name in list(names):
        if name not in ("__builtins__", "__name__", "__file__"):
            names.pop(name, None)


def check(script):
    """The script can be read and is Python, or Refused."""
    if not os.path.isfile(script):
        raise Refused(f"the script {script} is not there; script is relative to space.json")
    try:
        with open(script, "rb") as file:
            compile(file.read(), script, "exec", dont_inherit=True)
    except OSError as error:
        raise Refused(f"the script {script} can not be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise Refused(f"the script {script} is not a program of this Python: {error}") from error
