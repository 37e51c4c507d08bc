"""Diffs: git applies them, and gets exactly the new text."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from agentls.workspace.diffs import unified

WORDS = ["a\n", "b\n", "}\n", "\n", "é\r\n", "x\u2028y\n", "a\rb\n", "--- a\n", "\\ No newline\n"]


def applied(folder: Path, before: str | None, diff: str) -> str:
    path = folder / "f"
    path.unlink(missing_ok=True)
    if before is not None:
        path.write_bytes(before.encode())
    subprocess.run(["git", "apply", "--unidiff-zero", "-"], cwd=folder, input=diff.encode(), check=True)
    return path.read_bytes().decode()


@pytest.mark.parametrize("seed", range(60))
def test_git_makes_the_new_text_of_the_old_one(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    old = choose.choices(WORDS, k=choose.randint(0, 60))
    new = list(old)
    for _ in range(choose.randint(1, 5)):
        at = choose.randint(0, len(new))
        new[at : at + choose.randint(0, 3)] = choose.choices(WORDS, k=choose.randint(0, 3))
    before, after = ("".join(lines).removesuffix(choose.choice(["\n", ""])) for lines in (old, new))
    diff = unified(before, after, "f")
    if before == after:
        assert diff.text == ""
    else:
        assert applied(tmp_path, before, diff.text) == after


def test_a_diff_reads_as_git_writes_it() -> None:
    before = "".join(f"{n}\n" for n in range(1, 31))
    after = before.replace("3\n", "three\n", 1).replace("\n28\n", "\n28\nnew\n").removesuffix("\n")
    diff = unified(before, after, "src/a.py")
    assert diff.text == (
        "--- a/src/a.py\n+++ b/src/a.py\n"
        "@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n"
        "@@ -26,5 +26,6 @@\n 26\n 27\n 28\n+new\n 29\n-30\n+30\n\\ No newline at end of file\n"
    )
    assert (diff.added, diff.removed) == (3, 2)


def test_a_new_file_is_all_added(tmp_path: Path) -> None:
    diff = unified(None, "a\nb", "f")
    assert diff.text == "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    assert applied(tmp_path, None, diff.text) == "a\nb"


def test_another_line_ending_is_a_difference() -> None:
    assert unified("a\n", "a\r\n", "f").text.endswith("-a\n+a\r\n")


@pytest.mark.timeout(20)
def test_texts_that_have_nothing_or_everything_in_common_are_compared_in_time(tmp_path: Path) -> None:
    ones = "".join(f"{n}\n" for n in range(50_000))
    others = "".join(f"x{n}\n" for n in range(50_000))
    assert unified(ones, others, "f").added == 50_000
    assert unified(ones, ones.replace("\n25000\n", "\nx\n"), "f").added == 1
    same = "}\n" * 3900
    assert applied(tmp_path, same, unified(same, "{\n" + same + "{\n", "f").text) == "{\n" + same + "{\n"
