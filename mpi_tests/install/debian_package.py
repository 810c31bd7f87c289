#!/usr/bin/env python3
"""The Debian package: what it depends on, what it holds, and what lintian says of it.

    debian_package.py CPACK BUILD

Skipped (77) where Debian's tools are missing.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CPACK, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "file", "lintian", "strip")


def output(*words):
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


class DebianPackage(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        # What uninstall removes is not the package's.
        installed = BUILD / "installed_files.txt"
        before = installed.read_text() if installed.exists() else None
        # What packs longest makes the smallest package, and no other.
        output(CPACK, "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", folder,
               "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
        self.assertEqual(installed.read_text() if installed.exists() else None, before)
        self.package, = folder.glob("dstune-mpi_*.deb")

    def test_suits_debian(self):
        said = output("dpkg-deb", "--field", self.package)
        fields = dict(re.findall(r"(?m)^([\w-]+): (.*)", said))
        self.assertEqual(fields["Package"], "dstune-mpi")
        self.assertRegex(fields["Maintainer"], r"^[^<]+ <\S+@\S+>$")
        self.assertRegex(fields["Depends"], r"\blib(openmpi|mpich)")
        self.assertRegex(fields["Recommends"], r"^(openmpi-bin|mpich)$")
        self.assertEqual(self.package.name,
                         f"dstune-mpi_{fields['Version']}_{fields['Architecture']}.deb")

        said = output("dpkg-deb", "--contents", self.package)
        rows = [line.split(None, 5) for line in said.splitlines()]
        self.assertEqual({row[1] for row in rows}, {"root/root"})
        files = {row[5].removeprefix("./") for row in rows if not row[5].endswith("/")}
        doc = "usr/share/doc/dstune-mpi"
        self.assertLessEqual({"usr/bin/dstune-mpi", "usr/lib/dstune-mpi/libdstune-mpi-comm.so",
                              f"{doc}/copyright", f"{doc}/changelog.gz",
                              f"{doc}/changelog.Debian.gz"}, files)
        self.assertEqual([name for name in files if re.search("site-functions|LICENSE", name)], [])

        # Errors and warnings; what has a reason is in the overrides.
        lintian = subprocess.run(["lintian", str(self.package)], stdout=subprocess.PIPE, text=True)
        self.assertEqual(re.findall("(?m)^[EW]:.*", lintian.stdout), [])


if __name__ == "__main__":
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f"missing: {' '.join(missing)}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
