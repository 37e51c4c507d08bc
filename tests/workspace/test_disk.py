"""Files written whole: what is kept, what is refused, and what a crash leaves."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentls.workspace.disk import Changed, NotRegular, TooLarge, read, write
from agentls.workspace.texts import content_hash
from tests.workspace.support import ordinary_user

SIZE = 8_000_000
WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from agentls.workspace.disk import write
from agentls.workspace.texts import content_hash
path, contents = Path(sys.argv[1]), [b"a" * {size}, b"b" * {size}]
while True:
    for old, new in (contents, contents[::-1]):
        write(path, new, expected=content_hash(old))
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def replace(path: Path, data: bytes) -> None:
    write(path, data, expected=content_hash(path.read_bytes()))


# What is kept --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o644, 0o4750])
def test_an_existing_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    """E11: the executable bit."""
    path = tmp_path / "run.sh"
    path.write_bytes(b"old")
    path.chmod(mode)
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert names(tmp_path) == ["run.sh"]


def test_an_existing_file_keeps_its_extended_attributes(tmp_path: Path) -> None:
    """E11."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    try:
        os.setxattr(path, "user.agentls", b"kept")
    except OSError:
        pytest.skip("the file system of the tests has no extended attributes")
    replace(path, b"new")
    assert os.getxattr(path, "user.agentls") == b"kept"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_an_existing_file_keeps_its_owner(tmp_path: Path) -> None:
    """E11."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 1234, 2345)
    replace(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


@pytest.mark.parametrize("links", [["real.txt"], ["{folder}/real.txt"], ["real.txt", "one", "two"]])
def test_a_link_stays_and_its_target_changes(tmp_path: Path, links: list[str]) -> None:
    """E10: relative, absolute, a chain of three."""
    (tmp_path / "real.txt").write_bytes(b"old")
    for name, target in zip(["one", "two", "three"], links, strict=False):
        (tmp_path / name).symlink_to(target.format(folder=tmp_path))
    last = tmp_path / ["one", "two", "three"][len(links) - 1]
    replace(last, b"new")
    assert last.is_symlink()
    assert (tmp_path / "real.txt").read_bytes() == b"new"
    assert not (tmp_path / "real.txt").is_symlink()


def test_a_link_to_nothing_makes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("sub/new")
    write(tmp_path / "link", b"new", expected=None)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "sub/new").read_bytes() == b"new"


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    """E10."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "loop", b"new", expected=None)
    assert (tmp_path / "loop").is_symlink()


def test_hard_links_stay_one_file(tmp_path: Path) -> None:
    """E14: nlink > 1 is written in place, and the copy of the old content goes."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"old and longer")
    one.chmod(0o750)
    os.link(one, other)
    replace(one, b"new")
    assert other.read_bytes() == b"new"
    assert os.path.samefile(one, other)
    assert stat.S_IMODE(one.stat().st_mode) == 0o750
    assert names(tmp_path) == ["one", "other"]


def test_a_new_file_gets_its_folders_and_the_umasks_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "a/b/c.txt", b"new", expected=None)
    finally:
        os.umask(before)
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o640
    assert names(tmp_path / "a/b") == ["c.txt"]


@pytest.mark.parametrize("name", ["é" * 120, "a" * 240, os.fsdecode(b"\xff" * 200)])
def test_a_long_name_has_room_for_the_temporary_one(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, b"old", expected=None)
    replace(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"
    assert names(tmp_path) == [name]


# What is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard_links", [1, 2])
def test_a_file_that_is_not_as_expected_is_left_alone(tmp_path: Path, hard_links: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"theirs")
    for n in range(1, hard_links):
        os.link(path, tmp_path / f"link{n}")
    for expected in (None, content_hash(b"mine")):
        with pytest.raises(Changed):
            write(path, b"new", expected=expected)
    with pytest.raises(Changed, match="gone"):
        write(tmp_path / "gone", b"new", expected=content_hash(b"mine"))
    assert path.read_bytes() == b"theirs"
    assert len(names(tmp_path)) == hard_links


def test_of_many_who_expect_the_same_one_writes_and_all_others_are_told(tmp_path: Path) -> None:
    """Also for a file that is not there yet, and for one with hard links."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "linked").write_bytes(b"old")
    os.link(tmp_path / "linked", tmp_path / "link")

    together = threading.Barrier(8)

    def attempt(name: str, n: int) -> bytes | None:
        together.wait(10)
        data = b"%d" % n * 300_000
        try:
            write(tmp_path / name, data, expected=None if name == "fresh" else content_hash(b"old"))
        except Changed:
            return None
        return data

    for name in ("file", "linked", "fresh"):
        with ThreadPoolExecutor(8) as pool:
            wrote = [data for data in pool.map(attempt, [name] * 8, range(8)) if data is not None]
        assert wrote == [(tmp_path / name).read_bytes()]
    assert names(tmp_path) == ["file", "fresh", "link", "linked"]


def test_folders_and_what_is_no_file_are_refused_without_being_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(tmp_path)  # The path of a socket is short.
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        for name, error in (("folder", IsADirectoryError), ("pipe", NotRegular), ("socket", NotRegular)):
            with pytest.raises(error):
                read(tmp_path / name, 100)
            with pytest.raises(error):
                write(tmp_path / name, b"new", expected=None)


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert read(path, 100) == b"x" * 100
    with pytest.raises(TooLarge) as large:
        read(path, 99)
    assert large.value.size == 100
    with pytest.raises(TooLarge):
        read(Path("/proc/self/maps"), 10)  # Its size is said to be 0.
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "gone", 10)


def test_a_read_only_file_and_a_folder_without_permission_are_refused() -> None:
    with ordinary_user() as folder:
        path = folder / "sub/a"
        write(path, b"old", expected=None)
        path.chmod(0o444)
        with pytest.raises(PermissionError):
            replace(path, b"new")
        path.chmod(0o644)
        (folder / "sub").chmod(0o555)
        with pytest.raises(PermissionError):
            replace(path, b"new")
        (folder / "sub").chmod(0o000)
        with pytest.raises(PermissionError):
            read(path, 10)
        (folder / "sub").chmod(0o755)
        assert path.read_bytes() == b"old"
        assert names(folder / "sub") == ["a"]


# What fails halfway --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard_links", [1, 2])
def test_a_disk_that_is_full_leaves_the_old_content_and_nothing_else(tmp_path: Path, hard_links: int) -> None:
    """A limit on the size of files stands for the full disk: the write fails in its middle."""
    path = tmp_path / "a"
    path.write_bytes(b"old" * 1000)
    for n in range(1, hard_links):
        os.link(path, tmp_path / f"link{n}")
    code = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from agentls.workspace.disk import write\n"
        "from agentls.workspace.texts import content_hash\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "path = Path(sys.argv[1])\n"
        "try: write(path, b'n' * 200_000, expected=content_hash(path.read_bytes()))\n"
        "except OSError as error: print(error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path, server()], capture_output=True, text=True, check=True)
    assert int(done.stdout) == errno.EFBIG
    assert path.read_bytes() == b"old" * 1000
    assert len(names(tmp_path)) == hard_links


def ends(path: Path) -> tuple[bytes, bytes]:
    """The first and the last byte of one state of a file."""
    with path.open("rb") as file:
        return os.pread(file.fileno(), 1, 0), os.pread(file.fileno(), 1, SIZE - 1)


def killed_while_it_writes(path: Path, seen: Callable[[], bool]) -> None:
    """A writer that writes `a` and `b` by turns, killed when something is seen."""
    code = WRITER.format(size=SIZE)
    with subprocess.Popen([sys.executable, "-c", code, path, server()]) as writer:
        while not seen():
            assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)


def test_a_file_is_old_or_new_for_whoever_reads_and_when_its_writer_is_killed(tmp_path: Path) -> None:
    """E14: after a kill the file is old or new, never half."""
    path = tmp_path / "a"
    states: set[bytes] = set()

    def seen() -> bool:
        first, last = ends(path)
        assert first == last
        states.add(first)
        return len(states) == 2 and any(tmp_path.glob(".a.*.agentls-*"))

    for _ in range(4):
        path.write_bytes(b"a" * SIZE)
        states.clear()
        killed_while_it_writes(path, seen)
        assert path.read_bytes() in (b"a" * SIZE, b"b" * SIZE)
        for temporary in tmp_path.glob(".a.*"):
            temporary.unlink()


def test_a_writer_killed_in_place_leaves_the_whole_old_content_beside_a_half_one(tmp_path: Path) -> None:
    """E14: in place with a backup."""
    path = tmp_path / "a"
    path.touch()
    os.link(path, tmp_path / "link")
    for _ in range(50):
        path.write_bytes(b"a" * SIZE)
        killed_while_it_writes(path, lambda: len(set(ends(path))) == 2)
        left, copies = path.read_bytes(), list(tmp_path.glob(".a.*.agentls-old"))
        if left not in (b"a" * SIZE, b"b" * SIZE):
            assert [copy.read_bytes() for copy in copies] == [left[-1:] * SIZE]
            return
        for copy in copies:
            copy.unlink()
    pytest.fail("none was killed in the middle, so that nothing was shown")


def server() -> str:
    return str(Path(__file__).resolve().parents[2] / "server")
