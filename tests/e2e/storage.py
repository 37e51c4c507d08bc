"""Disks that fail where a test says, below a real server: a small file system, limits of the kernel, a folder that is
moved away, and a library that is preloaded (faults.c)."""

from __future__ import annotations

import errno
import mmap
import resource
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.c")
FOR_EVER = 2**32 - 1

_COUNT, _FAILED, _FIRST, _LAST, _ERROR, _DELAY = range(6)
_HEAD, _CALLS, _NAME = 32, 32768, 32


class Disk:
    """The disk of one server. `state` is the state folder as the server has it, `seen` as the test does; `begin` and
    `end` are a fault of the server `pid`."""

    before: Sequence[str] = ()
    env: Mapping[str, str] = {}

    def __init__(self, state: Path) -> None:
        self.state = self.seen = state

    def begin(self, pid: int) -> None:
        """From now on the disk fails."""
        raise NotImplementedError

    def end(self, pid: int) -> None:
        """The disk is well again."""
        raise NotImplementedError


class Moved(Disk):
    """A state folder that somebody renames."""

    def begin(self, pid: int) -> None:
        self.state.rename(self._elsewhere)

    def end(self, pid: int) -> None:
        self._elsewhere.rename(self.state)

    @property
    def _elsewhere(self) -> Path:
        return self.state.with_name("elsewhere")


class Limited(Disk):
    """A process that may make no file longer."""

    def begin(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def end(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Full(Disk):
    """A file system of two megabytes, in a mount namespace that `keeper` holds."""

    def __init__(self, state: Path, keeper: int) -> None:
        super().__init__(state)
        self.before = ("nsenter", f"--target={keeper}", "--user", "--mount", "--preserve-credentials", "--")
        self.seen = Path(f"/proc/{keeper}/root", *state.parts[1:])

    def begin(self, pid: int) -> None:
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            for size in (4096, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def end(self, pid: int) -> None:
        self._filler.unlink()

    @property
    def _filler(self) -> Path:
        return self.seen / "filler"


@contextmanager
def small_file_system(state: Path) -> Iterator[Full]:
    """A file system of its own for a state folder, which lasts until the end; the test is skipped where no user may
    have one."""
    state.mkdir()
    keeper = subprocess.Popen(
        [
            "unshare",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            'mount -t tmpfs -o size=2m none "$0" && echo && cat',
            state,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        if not keeper.stdout.readline():
            pytest.skip("this system lets no user mount a file system of their own")
        yield Full(state, keeper.pid)
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()


def compiled(folder: Path) -> Path:
    """The library of faults, made here; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) to make the library of faults with")
    library = folder / "faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE, "-ldl"], check=True)
    return library


class Faulty(Disk):
    """A disk whose calls are counted and fail by number, as `library` has it."""

    def __init__(self, state: Path, library: Path) -> None:
        super().__init__(state)
        control = library.with_name(f"{state.name}.control")
        control.write_bytes(bytes(_HEAD + _CALLS * _NAME))
        self.env = {
            "LD_PRELOAD": str(library),
            "AGENTLS_FAULTS_FOLDER": str(state),
            "AGENTLS_FAULTS_CONTROL": str(control),
        }
        with control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def saying(self, error: int) -> Disk:
        """The fault of all calls, with this number."""
        return _Saying(self, error)

    def fail(self, after: int, times: int = FOR_EVER, *, error: int = errno.EIO) -> None:
        """Let so many calls pass from now on, and so many fail."""
        self._set(_LAST, 0)
        self._set(_ERROR, error)
        first = self.count + after
        self._set(_FIRST, first)
        self._set(_LAST, min(first + times, FOR_EVER))

    def mend(self) -> None:
        """No call fails any more."""
        self._set(_LAST, 0)

    @property
    def fails(self) -> bool:
        """Whether every call fails now."""
        return self._get(_LAST) == FOR_EVER and self.count >= self._get(_FIRST)

    def slow_down(self, milliseconds: int) -> None:
        """Let every sync wait."""
        self._set(_DELAY, milliseconds * 1000)

    @property
    def count(self) -> int:
        """How many calls there were."""
        return self._get(_COUNT)

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return self._get(_FAILED)

    def call(self, number: int) -> str:
        """What a call was and to which file: `sync sessions.db-wal`."""
        start = _HEAD + number % _CALLS * _NAME
        return self._memory[start : start + _NAME].split(b"\0")[0].decode()

    def _get(self, word: int) -> int:
        (value,) = struct.unpack_from("=I", self._memory, word * 4)
        return int(value)

    def _set(self, word: int, value: int) -> None:
        struct.pack_into("=I", self._memory, word * 4, value)


class _Saying(Disk):
    def __init__(self, disk: Faulty, error: int) -> None:
        super().__init__(disk.state)
        self._disk = disk
        self._error = error

    def begin(self, pid: int) -> None:
        self._disk.fail(0, error=self._error)

    def end(self, pid: int) -> None:
        self._disk.mend()
