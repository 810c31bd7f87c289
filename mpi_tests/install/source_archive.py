#!/usr/bin/env python3
"""The archive of the sources: it has what git tracks, and configures from its own folder.

    source_archive.py CMAKE CPACK SOURCES BUILD

Skipped (77) where SOURCES is no checkout of git.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

CMAKE, CPACK = sys.argv[1:3]
SOURCES, BUILD = (pathlib.Path(word) for word in sys.argv[3:5])


def output(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE,
                          text=True, **options).stdout


class SourceArchive(unittest.TestCase):
    def test_has_what_git_tracks_and_configures(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        output(CPACK, "--config", BUILD / "CPackSourceConfig.cmake", "-B", folder)
        archive, = folder.glob("dstune-mpi-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder / "unpacked")
        top, = (folder / "unpacked").iterdir()
        self.assertEqual(top.name + ".tar.gz", archive.name)

        # A file may be deleted, and not yet committed.
        listed = output("git", "-c", "core.quotePath=off", "ls-files", cwd=SOURCES).splitlines()
        tracked = {name for name in listed if (SOURCES / name).exists()}
        found = {str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir()}
        self.assertEqual(found, tracked)
        for name in found:
            self.assertEqual((top / name).read_bytes(), (SOURCES / name).read_bytes(), name)
            self.assertEqual(*(os.access(path / name, os.X_OK) for path in (top, SOURCES)), name)

        output(CMAKE, "--preset", "package", "-DDSTUNE_CUDA=OFF", cwd=top)
        made = output(CMAKE, "--build", top / "build/package", "--target", "help")
        self.assertIn("dstune-mpi-library: phony", made)
        self.assertNotIn("test_", made)


if __name__ == "__main__":
    if not shutil.which("git") or not (SOURCES / ".git").exists():
        print("the sources are no checkout of git: what it tracks is not known")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
