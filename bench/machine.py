"""This machine for the programs of bench/: its cards, its ports, the processes of a job, and the environment that our binary needs."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent


def cards():
    """[(name, driver)] of this machine."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [tuple(part.strip() for part in line.split(",")) for line in output.splitlines() if "," in line]


def environment(folder):
    """With the libraries of the folder and of this Python's torch in reach."""
    site = pathlib.Path(sysconfig.get_path("purelib"))
    found = [folder / "lib", folder / "build", *site.glob("nvidia/*/lib"), site / "torch/lib"]
    paths = [str(path) for path in found if path.is_dir()] + os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return os.environ | {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), "TRIREME_BUILD": str(folder / "build")}


def use_build():
    """The binary of TRIREME_BUILD, or of this checkout's build; from here on this process and those that it starts find its libraries."""
    build = os.environ.get("TRIREME_BUILD", str(HERE.parent / "build"))
    os.environ.update(environment(HERE.parent) | {"TRIREME_BUILD": build})
    return pathlib.Path(build) / "trireme"


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def children_of(process):
    lists = pathlib.Path(f"/proc/{process}/task").glob("*/children")
    with contextlib.suppress(OSError):
        return [int(child) for children in lists for child in children.read_text(encoding="ascii").split()]
    return []


def end_all(process):
    """It and what it has started, in whatever process group: a job that lives on would keep its cards."""
    for child in children_of(process):
        end_all(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def end_all_when_told():
    """On SIGTERM this process ends with what it has started, which may be in sessions of its own."""
    signal.signal(signal.SIGTERM, lambda *_: end_all(os.getpid()))
