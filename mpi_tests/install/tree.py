#!/usr/bin/env python3
"""An installation: its files, moved to another folder, used from an empty one, and removed.

    tree.py CMAKE MPIRUN SOURCES BUILD LIBDIR [manuals] [--strip]

LIBDIR is relative to the installation, `manuals` says that the build makes them, --strip is for
`cmake --install`.
"""
import ctypes
import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

CMAKE, MPIRUN = sys.argv[1:3]
SOURCES, BUILD = (pathlib.Path(word) for word in sys.argv[3:5])
LIBDIR = sys.argv[5]
HAS_MANUALS = "manuals" in sys.argv[6:]
STRIP = [word for word in sys.argv[6:] if word == "--strip"]
PREFIX = "opt/site"  # below DESTDIR


def below(folder, pattern="**/*"):
    return {str(path.relative_to(folder)) for path in folder.glob(pattern)
            if not path.is_dir() or path.is_symlink()}


def expected_files():
    files = {"bin/dstune-mpi", "include/dstune/workload.h"}
    files |= {f"{LIBDIR}/dstune-mpi/libdstune-mpi{name}.so" for name in ("", "-comm")}
    files |= {f"{LIBDIR}/cmake/dstune/dstune-config{name}.cmake" for name in ("", "-version")}
    files |= {f"share/dstune/schema/{name}" for name in below(SOURCES / "docs", "*.schema.json")}
    files |= {f"share/doc/dstune-mpi/{name}" for name in ("README.md", "LICENSE")}
    files |= {f"share/doc/dstune-mpi/docs/{name}" for name in below(SOURCES / "docs", "**/*.md")}
    for folder in ("spaces", "plugin", "slurm", "pbs", "lsf", "flux"):
        files |= {f"share/dstune/examples/{folder}/{name}"
                  for name in below(SOURCES / "scripts" / folder)
                  if not re.search(r"(^|/)(__pycache__|autotuning_\w+)/", name)}
    if HAS_MANUALS:
        files |= {"share/man/man1/dstune-mpi.1", "share/man/man5/dstune-space.5",
                  "share/bash-completion/completions/dstune-mpi",
                  "share/zsh/site-functions/_dstune-mpi",
                  "share/fish/vendor_completions.d/dstune-mpi.fish"}
    return files


class Installation(unittest.TestCase):
    """The tests run by name, each on what the one before left."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name).resolve()
        cls.moved = cls.folder / "moved to another folder"
        cls.tree = cls.moved / PREFIX
        cls.work = cls.folder / "work"
        cls.work.mkdir()
        os.umask(0o022)
        # The component has a manifest of its own: that of a user's installation stays.
        cls.cmake("--install", str(BUILD), "--component", "Unspecified", "--prefix", f"/{PREFIX}",
                  *STRIP, DESTDIR=str(cls.folder / "stage"))
        cls.manifest = cls.folder / "manifest.txt"
        shutil.move(BUILD / "install_manifest_Unspecified.txt", cls.manifest)
        (cls.folder / "stage").rename(cls.moved)
        (cls.folder / "links").mkdir()
        cls.program = cls.folder / "links/dstune-mpi"
        cls.program.symlink_to(cls.tree / "bin/dstune-mpi")

    @staticmethod
    def cmake(*words, **variables):
        subprocess.run([CMAKE, *words], check=True, stdout=subprocess.PIPE,
                       env={**os.environ, **variables})

    def run_program(self, *words, launcher=()):
        """What the program says, without a home, in a folder that has nothing of it."""
        kept = ("OMP", "PRTE", "PMIX", "ASAN", "UBSAN", "TSAN", "LD_LIBRARY_PATH", "PATH")
        done = subprocess.run([*launcher, str(self.program), *words], cwd=self.work, timeout=120,
                              env={key: value for key, value in os.environ.items()
                                   if key.startswith(kept)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def check_job(self, space):
        self.run_program(str(space), launcher=[MPIRUN, "-n", "2"])
        results = self.work / "autotuning_results"
        self.assertEqual(json.loads((results / "exit_status.json").read_text())["exit_code"], 0)
        self.assertTrue((results / "ds_config_optimal.json").exists())
        shutil.rmtree(results)

    def test_1_has_all_files_and_no_other(self):
        self.assertEqual(below(self.tree), expected_files())

    def test_2_is_for_everybody_to_read(self):
        for path in [self.tree, *self.tree.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            allowed = {0o755} if path.is_dir() or path.parent.name == "bin" else {0o644}
            # Systems differ in whether a shared library may be executed.
            allowed |= {0o755} if path.suffix == ".so" else set()
            self.assertIn(mode, allowed, f"{path} has mode {mode:o}")

    def test_3_names_no_folder_of_the_machine_that_built_it(self):
        folders = {str(folder) for path in (SOURCES, BUILD) for folder in (path, path.resolve())}
        # In front of a path there may be text of another constant, but no folder.
        words = [rf"(?<![/.-]){re.escape(folder)}(?![\w-])" for folder in folders]
        in_texts = re.compile("|".join(words).encode())
        home = os.environ.get("HOME", "")
        words += ["ccache"] + [re.escape(home) + "/"] * (len(home) > 1)
        in_programs = re.compile("|".join(words).encode())
        for name in below(self.tree):
            is_text = not name.startswith(("bin/", LIBDIR))
            found = (in_texts if is_text else in_programs).findall((self.tree / name).read_bytes())
            self.assertEqual(found, [], name)

    def test_4_says_its_version_and_plans(self):
        said = self.run_program("--version")
        lists = (SOURCES / "CMakeLists.txt").read_text()
        version = re.search(r"project\(\S+ VERSION (\S+)", lists)[1]
        self.assertTrue(said.startswith(f"dstune-mpi {version}\n"), said)
        self.assertRegex(said, r"\nMPI: .*[0-9]")
        space = self.tree / "share/dstune/examples/spaces/plan/full.json"
        said = self.run_program("plan", "--model", "llama-7b", "--device", "a100-80gb", str(space))
        self.assertIn("The largest micro-batch that fits is", said)
        self.assertEqual(list(self.work.iterdir()), [])

    def test_5_runs_a_job(self):
        spaces = self.tree / "share/dstune/examples/spaces"
        text = (spaces / "quickstart.json").read_text()
        space = json.loads(re.sub(r"(?m)^ *//.*", "", text))
        space["dstune"] |= {"model": {"hf_config": str(spaces / "gpt2-tiny/config.json")},
                            "resources": {"num_gpus": 2}, "trial_budget_s": 0.1}
        space |= {"train_micro_batch_size_per_gpu": [1], "zero_optimization": {"stage": [0, 1]},
                  "autotuning": {"enabled": True, "tuner_type": "gridsearch"}}
        (self.work / "space.json").write_text(json.dumps(space))
        self.check_job("space.json")

    def test_6_has_all_that_a_plug_in_is_built_with(self):
        # The example's space names the library by its place beside the copied folder.
        shutil.copytree(self.tree / "share/dstune/examples", self.work / "examples")
        self.cmake("-S", str(self.work / "examples/plugin"), "-B", str(self.work / "build/plugin"),
                   f"-DCMAKE_PREFIX_PATH={self.tree}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                   "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF")
        self.cmake("--build", str(self.work / "build/plugin"))
        command, = json.loads((self.work / "build/plugin/compile_commands.json").read_text())
        words = shlex.split(command["command"])
        self.assertIn(str(self.tree / "include"), words)
        self.assertEqual([word for word in words if str(SOURCES) in word], [])
        space = self.work / "examples/spaces/plugin.json"
        fewer = {"[2, 4]": "2", "[1, 4]": "[1]", "[0, 1, 2, 3]": "[0, 3]", "0.5": "0.1"}
        text = space.read_text()
        for old, new in fewer.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        space.write_text(text)
        self.check_job(space)

    @unittest.skipIf(STRIP, "a sanitizer's library comes before all others")
    def test_7_has_a_library_that_python_loads(self):
        library = ctypes.CDLL(str(self.tree / LIBDIR / "dstune-mpi/libdstune-mpi.so"))
        self.assertTrue(library.dstune_engine_begin)

    def test_8_is_removed_and_what_is_a_users_stays(self):
        uninstall = ["-D", f"MANIFEST={self.manifest}", "-P",
                     str(SOURCES / "scripts/cmake/uninstall.cmake")]
        own = self.tree / "share/dstune/examples/own.json"
        own.write_text("{}")
        self.cmake(*uninstall, DESTDIR=str(self.moved))
        self.assertEqual(below(self.moved), {str(own.relative_to(self.moved))})
        own.unlink()
        self.cmake(*uninstall, DESTDIR=str(self.moved))
        left = [path for path in self.moved.rglob("*") if re.search("dstune", path.name)]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], failfast=True)
