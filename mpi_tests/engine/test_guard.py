"""The guard without torch: what packages ask is answered, nothing else starts a process."""

import json
import os
import subprocess
import sys
import unittest

from harness import ROOT

SOURCES = os.path.join(ROOT, "src", "instrument", "engine", "python")

CHECK = """
import sys
sys.path.insert(0, sys.argv[1])
from dstune_engine import guard
guard.install()
import errno, json, os, platform, subprocess
out = {}
out["ldconfig"] = "libc.so.6" in subprocess.check_output(["/sbin/ldconfig", "-p"], text=True)
out["df"] = subprocess.check_output("df -PT /".split(), encoding="utf-8").splitlines()[1].split()[-1]
out["uname"] = subprocess.run(["uname", "-m"], capture_output=True, text=True).stdout.strip() == os.uname().machine
out["type"] = subprocess.Popen(["bash", "-c", "type no-such-program"], stdout=subprocess.PIPE).wait()
cpu = subprocess.Popen([sys.executable, "/any/cpuinfo.py", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
out["cpuinfo"] = bool(json.loads(cpu.communicate()[0])["flags"])
out["architecture"] = platform.architecture()[0]
def refused(action):
    try:
        action()
    except OSError as error:
        return str(error)
    return "not refused"
out["git"] = refused(lambda: subprocess.run(["git", "log"]))
out["run"] = refused(lambda: subprocess.run(["sleep", "1"]))
out["system"] = refused(lambda: os.system("sleep 1"))
out["popen"] = refused(lambda: os.popen("sleep 1"))
out["fork"] = refused(os.fork)
out["posix_spawn"] = refused(lambda: os.posix_spawn("/bin/true", ["true"], {}))
out["exec"] = refused(lambda: os.execv("/bin/true", ["true"]))
import multiprocessing
out["spawn"] = refused(lambda: multiprocessing.get_context("spawn").Process(target=print).start())
out["forkserver"] = refused(lambda: multiprocessing.get_context("forkserver").Process(target=print).start())
out["kinds"] = sorted({kind for kind, _ in guard.asked})
print(json.dumps(out))
"""


class GuardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        told = subprocess.run([sys.executable, "-c", CHECK, SOURCES], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        cls.out = json.loads(told.stdout)

    def test_known_look_ups_are_answered(self):
        for name in ("ldconfig", "uname", "cpuinfo"):
            self.assertTrue(self.out[name], name)
        self.assertEqual(self.out["df"], "/")
        self.assertEqual(self.out["type"], 1)
        self.assertEqual(self.out["architecture"], "64bit")

    def test_what_is_not_needed_is_not_installed(self):
        self.assertIn("No such file", self.out["git"])

    def test_everything_else_is_refused_by_name(self):
        for name in ("run", "system", "popen", "posix_spawn", "exec", "fork", "spawn", "forkserver"):
            self.assertIn("a process would be started", self.out[name], name)
        self.assertIn("sleep 1", self.out["run"])
        self.assertEqual(self.out["kinds"], ["absent", "answered", "refused"])


if __name__ == "__main__":
    unittest.main()
