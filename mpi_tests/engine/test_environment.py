"""scripts/engine/environment.sh with a Python that is played, and what it installs; the command for an operator."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONSTRAINTS = os.path.join(ROOT, "scripts", "engine", "constraints.txt")
sys.path.insert(0, os.path.join(ROOT, "src", "instrument", "engine", "python"))

# Makes environments of itself and notes what pip is asked for.
PLAYED = """#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip "*)
    echo "$DS_BUILD_OPS$DS_BUILD_FUSED_ADAM$DS_BUILD_CPU_ADAM $*" >>"$CALLS"
    case "$*" in *--no-binary*) exit "$COMPILER" ;; esac ;;
  "- "*) exit "$BUILT" ;;
esac
"""


class EnvironmentTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = os.path.join(temporary.name, "an environment")
        self.calls = os.path.join(temporary.name, "calls")
        python = os.path.join(temporary.name, "python3")
        with open(python, "w", encoding="utf-8") as file:
            file.write(PLAYED)
        os.chmod(python, 0o755)
        self.variables = {"PATH": temporary.name + ":" + os.environ["PATH"], "CALLS": self.calls, "COMPILER": "0",
                          "BUILT": "0", "DSTUNE_ENGINE_ENVIRONMENT": self.folder}

    def make(self, **variables):
        """What it says, and pip's calls."""
        scripts = os.path.join(ROOT, "scripts")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f". '{scripts}/needs.sh'; . '{scripts}/engine/environment.sh'; "
             "make_engine_environment"], env={**self.variables, **variables}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.calls, encoding="utf-8") as lines:
            return done.stderr, lines.read().splitlines()

    def test_all_is_pinned_and_operators_are_built(self):
        said, calls = self.make()
        for call in calls:
            self.assertIn(f"-c {CONSTRAINTS}", call)
        self.assertRegex(calls[-1], "^011 .* deepspeed$")
        self.assertIn("GB of disk", said)
        self.assertNotIn("could not be built", said)
        # Once is enough.
        said, again = self.make()
        self.assertEqual(again, calls)
        self.assertIn("is there", said)

    def test_an_index_for_torch_serves_torch_alone(self):
        said, calls = self.make(DSTUNE_TORCH_INDEX="file:///wheels")
        indexed = [call for call in calls if "--index-url" in call]
        self.assertEqual(len(indexed), 1)
        self.assertRegex(indexed[0], "--no-deps --index-url file:///wheels .* torch$")
        self.assertNotIn("GB of disk", said)

    def test_without_a_compiler_it_goes_on(self):
        said, calls = self.make(COMPILER="1", BUILT="1")
        self.assertRegex(calls[-1], "^0 .* deepspeed$")
        self.assertIn("without: fused_adam cpu_adam", said)
        self.assertIn("an environment/operators.log", said)

    def test_no_operator_is_built_where_none_is_wanted(self):
        said, calls = self.make(DSTUNE_ENGINE_OPERATORS="", BUILT="1")
        self.assertRegex(calls[-1], "^0 .* deepspeed$")
        self.assertNotIn("--no-binary", "".join(calls))
        self.assertNotIn("could not be built", said)

    def test_operators_that_deepspeed_leaves_out_are_named(self):
        said, calls = self.make(BUILT="1")
        self.assertRegex(calls[-1], "^011 ")
        self.assertIn("without: fused_adam cpu_adam", said)

    def test_each_python_has_one_version_of_each_package(self):
        holds = {"": range(10, 14), '; python_version < "3.11"': range(10, 11),
                 '; python_version >= "3.11"': range(11, 14)}
        versions = {}
        with open(CONSTRAINTS, encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("#"):
                    continue
                name, _, marker = re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9.]*)(; .*)?", line.strip()).groups()
                for minor in holds[marker or ""]:
                    self.assertNotIn((name, minor), versions)
                    versions[name, minor] = line
        for name in ("torch", "deepspeed", "transformers", "accelerate", "peft", "numpy", "setuptools"):
            for minor in range(10, 14):
                self.assertIn((name, minor), versions)


class CommandTest(unittest.TestCase):
    def test_it_finds_ninja_beside_the_interpreter(self):
        from dstune_engine import operators

        class SomeBuilder:
            pass

        with tempfile.TemporaryDirectory(prefix="a folder ") as folder:
            python = os.path.join(folder, "python")
            with open(python, "w", encoding="utf-8") as file:
                file.write('#!/bin/sh\nprintf "%s\\n" "$PATH" "$TORCH_EXTENSIONS_DIR" "$@"\n')
            os.chmod(python, 0o755)
            with mock.patch.object(sys, "executable", python), \
                    mock.patch.dict(os.environ, TORCH_EXTENSIONS_DIR=os.path.join(folder, "built")):
                command = operators.command_for(SomeBuilder())
            printed = subprocess.run(["sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, check=True,
                                     capture_output=True, text=True).stdout.splitlines()
        self.assertEqual(printed, [folder + ":/usr/bin:/bin", os.path.join(folder, "built"), "-c",
                                   f"from {__name__} import SomeBuilder as b; b().load()"])

    def test_what_is_built_and_does_not_load_is_to_be_built_again(self):
        from dstune_engine import operators
        with tempfile.TemporaryDirectory() as folder:
            builder = mock.Mock()
            builder.name = "fused_adam"
            all_ops = mock.Mock(ALL_OPS={"fused_adam": builder, "cpu_adam": builder})
            fails = mock.Mock(side_effect=ImportError("of another Python"))
            with mock.patch.dict(sys.modules, {"deepspeed": mock.Mock(), "deepspeed.ops": mock.Mock(),
                                               "deepspeed.ops.op_builder": mock.Mock(),
                                               "deepspeed.ops.op_builder.all_ops": all_ops}), \
                    mock.patch.object(operators, "built_library", lambda built: folder), \
                    mock.patch.object(operators, "command_for", lambda built: "build it"):
                with mock.patch.object(operators, "load_built", fails):
                    self.assertEqual(operators.unloadable({"fused_adam"}),
                                     {"fused_adam": ("ImportError: of another Python", "build it")})
                with mock.patch.object(operators, "load_built"):
                    self.assertEqual(operators.unloadable({"fused_adam"}), {})


if __name__ == "__main__":
    unittest.main()
