"""What the tests of the scripts of bench/ share. Their arguments: SOURCE_DIR BINARY_DIR."""
import pathlib
import stat
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BUILD = map(pathlib.Path, sys.argv[1:3])
BENCH = SOURCE / "bench"
ORACLE = SOURCE / ".deps/oracle/bin/python"
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]
from runs import script  # of that folder; a script of it as a module


def output_of(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def has_ended(process):
    """Within seconds: who was killed is still there until its processor comes to it."""
    status = pathlib.Path(f"/proc/{process}/stat")
    for _ in range(200):
        try:
            if status.read_text(encoding="ascii").split()[2] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


class ScriptTest(unittest.TestCase):
    """Each test has an empty folder."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
