"""After a script everything of its process is as before it, and whatever it raises is told."""

import json
import os
import subprocess
import sys
import time

from harness import EngineTest, HERE, ROOT, config, main, write

SOURCES = os.path.join(ROOT, "src", "instrument", "engine", "python")


def make_packages(folder):
    """A folder of any name on PYTHONPATH: an installed package, one imported at the start, the user's module."""
    for name in ("", "installed", "early", "installed-1.0.dist-info"):
        os.mkdir(os.path.join(folder, name))
    write(folder, "installed/__init__.py", "")
    write(folder, "installed/part.py", "text = 'used'\n\n\ndef use():\n    return text\n")
    write(folder, "installed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
    write(folder, "installed-1.0.dist-info/RECORD", "installed/__init__.py,,\ninstalled/part.py,,\n")
    write(folder, "early/__init__.py", "")
    write(folder, "early/late.py", "")
    write(folder, "sitecustomize.py", "import early\n")
    write(folder, "mine.py", "")
    return folder


def make_temporary_folders(folder):
    """Of a process that is gone, of this one, and of somebody else."""
    os.mkdir(folder)
    made = subprocess.run([sys.executable, "-c", "from dstune_engine import temporary\n"
                           "print(temporary.make('dstune-config-'), temporary.make('dstune-scratch-'))"], check=True,
                          env={**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": folder}, capture_output=True, text=True)
    ended = made.stdout.split()
    number, began = os.path.basename(ended[0]).split("-")[3:5]
    with open("/proc/self/stat", encoding="ascii") as file:
        mine = file.read().rpartition(")")[2].split()[19]
    kept = [ended[0].replace(f"-{number}-{began}-", f"-{os.getpid()}-{mine}-"),
            os.path.join(folder, "dstune-config-aaaaaaaaaaaa-1-1-x"), os.path.join(folder, "dstune-config-of-a-user")]
    for path in kept:
        os.mkdir(path)
    return ended, kept


class ProcessTest(EngineTest):
    size = 1

    @classmethod
    def workload(cls):
        packages = make_packages(os.path.join(cls.folder, "packages"))
        temporary = os.path.join(cls.folder, "temporary")
        cls.ended, cls.kept = make_temporary_folders(temporary)
        return {"workload": {"script": os.path.join(HERE, "leaves.py")}, "PYTHONPATH": packages, "TMPDIR": temporary}

    def begin(self, case, *words):
        arguments = ["--case", case, *words, "--deepspeed_config", "$CONFIG"]
        return self.world.begin([0], config(), arguments=arguments, folder=self.folder)

    def run_case(self, case, *words, steps=3):
        return self.world.finish(self.begin(case, *words), steps)

    def good(self):
        """After whatever came before, a good experiment runs."""
        self.assertOk(self.run_case("plain"))

    def look(self):
        path = os.path.join(self.folder, "look.json")
        self.assertOk(self.run_case("look", "--out", path))
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_timers_and_watchdogs_end_with_the_script(self):
        self.assertOk(self.run_case("leaves: alarm virtual prof posix dump timer thread", "--at", "2"))
        end = time.monotonic() + 1.2
        while time.monotonic() < end:  # timers of processor time run too
            self.assertOk(self.run_case("plain"))
        self.assertIsNone(self.world.ranks[0].process.poll())

    def test_modules_that_a_script_removed_are_put_back(self):
        self.run_case("leaves: modules", "--at", "2")
        self.good()

    def test_standard_streams_are_put_back(self):
        self.look()
        before = self.look()["descriptors"]
        for case in ("closes", "redirects"):
            self.assertOk(self.run_case("leaves: " + case, "--at", "2"))
            self.assertEqual(self.look()["descriptors"], before, case)

    def test_a_script_that_stands_still_has_no_alarm(self):
        group = self.begin("stands")
        self.assertTrue(group[0].receive()["ok"])
        for number in (1, 2):
            self.assertTrue(self.world.ask(group, "step", number=number)[0]["ok"])
        time.sleep(1.2)
        self.assertTrue(self.world.ask(group, "step", number=3)[0]["ok"])
        self.assertTrue(self.world.ask(group, "end", failed=False)[0]["ok"])

    def test_everything_is_as_before(self):
        self.look()
        before = self.look()
        result = self.run_case("everything", "--at", "2")
        self.assertOk(result)
        notes = " ".join(result["end"][0]["notes"])
        self.assertIn("the script lowers RLIMIT_FSIZE", notes)
        after = self.look()
        for name, value in before.items():
            self.assertEqual(after[name], value, name)

    def test_whatever_is_raised_is_told(self):
        for case, text in (("unwritable", "Unwritable"), ("notext", "NoText"), ("equal", "Equal: first"),
                           ("leaving", "Leaving"), ("surrogate", r"half a pair: \ud800"), ("long", "ValueError: xxx")):
            error = self.assertFails(self.run_case(case), "exception", text)
            self.assertLess(len(error["message"]), 2000)
            self.assertIn("leaves.py", error["traceback"], case)
            self.assertLess(len(error["traceback"]), 40000)
        self.assertFails(self.run_case("exit"), "refused", "sys.exit(<a Unwritable whose text fails")
        self.good()

    def test_a_script_does_not_end_its_process(self):
        self.assertFails(self.run_case("really_exit"), "refused", "sys.exit(3)")
        for case in ("kill", "kill_launcher", "raise"):
            self.assertFails(self.run_case(case), "refused", "would be sent to the ranks of the job or to mpirun")
        self.assertOk(self.run_case("handled"))
        self.good()

    def test_a_script_that_goes_on_whatever_happens_ends(self):
        for case in ("keeps_on", "keeps_on_2", "keeps_on_3"):
            self.assertOk(self.run_case(case))
        self.assertFails(self.run_case("keeps_on_wrong"), "refused", "is 3")
        group = self.begin("keeps_on_waiting")
        self.assertTrue(group[0].receive()["ok"])
        self.assertTrue(self.world.ask(group, "step", number=1)[0]["ok"])
        group[0].send("step", number=2, count=5)
        self.assertEqual(group[0].interrupt(shutdown=False)["error"]["kind"], "interrupted")
        self.assertTrue(self.world.ask(group, "end", failed=True)[0]["ok"])
        self.good()

    def test_installed_packages_stay_and_the_users_modules_go(self):
        for _ in range(2):
            self.assertOk(self.run_case("packages"))

    def test_temporary_folders_of_killed_ranks_go(self):
        for path in self.ended:
            self.assertFalse(os.path.exists(path))
        for path in self.kept:
            self.assertTrue(os.path.exists(path))


if __name__ == "__main__":
    main()
