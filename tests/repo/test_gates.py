"""The gates on the repository itself, and the proof that each goes red: every fault is planted and seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repo import gates

REPOSITORY = Path(__file__).resolve().parents[2]

# Pieces of what the gates look for, since they read this file too.
DOCS = "docs"
PAGE = f"{DOCS}/page.md"
SHARED = "shared" + "/"
PAGES = [name + ".md" for name in ("DESIGN", "PROTOCOL", "RIG", "SEMANTICS", "STYLE")]

RFC = """\
# One log

Status: implemented

## Problem

Two logs disagree.

## Decision

One log.

## Alternatives

Two logs.

## Consequences

One place to look.
"""

INDEX = """\
# RFCs

## Implemented

### Architecture

- [One log](implemented/architecture/2026-01-02-one-log.md)
"""

RFC_PATH = f"{DOCS}/rfc/implemented/architecture/2026-01-02-one-log.md"


def tree(root: Path, **changes: str | None) -> Path:
    """Write a small good repository with some files changed, added or (None) left out; return its root."""
    files: dict[str, str | None] = {
        "README.md": "# Small\n\nRun `scripts/demo`, then `scripts/test`.\n",
        "docs/rfc/README.md": INDEX,
        RFC_PATH: RFC,
        "scripts/setup": "#!/usr/bin/env bash\n",
        "scripts/check": "#!/usr/bin/env bash\n",
        "scripts/test": "#!/usr/bin/env bash\n",
        "scripts/demo": "#!/usr/bin/env bash\n",
        ".ci/run": "#!/usr/bin/env bash\nscripts/test\n",
    }
    files.update(changes)
    for name, text in files.items():
        if text is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if text.startswith("#!") else 0o644)
    return root


def found(gate: gates.Gate, root: Path) -> list[str]:
    return [str(finding) for finding in gate(root)]


@pytest.mark.parametrize("gate", gates.GATES, ids=lambda gate: gate.__name__)
def test_the_repository_passes(gate: gates.Gate) -> None:
    assert found(gate, REPOSITORY) == []


@pytest.mark.parametrize("gate", gates.GATES, ids=lambda gate: gate.__name__)
def test_a_good_tree_passes(gate: gates.Gate, tmp_path: Path) -> None:
    assert found(gate, tree(tmp_path)) == []


# --- RFC classification -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("accepted/architecture/2026-01-02-one-log.md", 'unknown lifecycle folder "accepted"'),
        ("implemented/design/2026-01-02-one-log.md", 'unknown class folder "design"'),
        ("implemented/2026-01-02-one-log.md", "wrong depth"),
        ("2026-01-02-one-log.md", "wrong depth"),
        ("implemented/architecture/store/2026-01-02-one-log.md", "wrong depth"),
        ("implemented/architecture/one-log.md", "is not YYYY-MM-DD-topic.md"),
        ("implemented/architecture/2026-02-30-one-log.md", "is not YYYY-MM-DD-topic.md"),
        ("implemented/architecture/2026-01-02-One-Log.md", "is not YYYY-MM-DD-topic.md"),
        ("implemented/architecture/2026-01-02-one-log.txt", "is not YYYY-MM-DD-topic.md"),
    ],
)
def test_an_rfc_in_a_wrong_place_or_undated_is_found(path: str, problem: str, tmp_path: Path) -> None:
    """Statement 73: unknown lifecycle or class folder, wrong depth, no date: the gate fails."""
    path = f"{DOCS}/rfc/{path}"
    (finding,) = found(gates.rfc_classification, tree(tmp_path, **{RFC_PATH: None, path: RFC}))
    assert finding.startswith(f"{path}:1: ")
    assert problem in finding


def test_a_status_other_than_the_folder_is_found(tmp_path: Path) -> None:
    """Statement 73: a status that disagrees with its folder: the gate fails."""
    text = RFC.replace("Status: implemented", "Status: proposed")
    assert found(gates.rfc_classification, tree(tmp_path, **{RFC_PATH: text})) == [
        f'{RFC_PATH}:3: says "Status: proposed" in the folder "implemented"; the two must agree'
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("# One log\n", "One log\n", "has no title"),
        ("Status: implemented\n\n", "", "has 0 `Status:` lines"),
        ("One log.\n", "Status: implemented\n", "has 2 `Status:` lines"),
        ("# One log\n", "# One log\n\nA word first.\n", "on another line than 3"),
        ("## Alternatives\n\nTwo logs.\n", "", 'no section "## Alternatives"'),
        ("## Problem\n", "## Why\n", 'no section "## Problem"'),
        ("## Decision\n", "```text\n## Decision\n```\n", 'no section "## Decision"'),
        (
            "## Consequences\n",
            "## Consequences\n\nMany.\n\n## Problem\n",
            'has the section "## Problem" twice',
        ),
    ],
)
def test_an_rfc_of_another_shape_is_found(old: str, new: str, problem: str, tmp_path: Path) -> None:
    assert old in RFC
    findings = found(gates.rfc_classification, tree(tmp_path, **{RFC_PATH: RFC.replace(old, new, 1)}))
    assert any(problem in finding for finding in findings), findings


def test_sections_in_another_order_are_found(tmp_path: Path) -> None:
    text = RFC.replace("## Problem", "## X").replace("## Decision", "## Problem").replace("## X", "## Decision")
    (finding,) = found(gates.rfc_classification, tree(tmp_path, **{RFC_PATH: text}))
    assert "in another order" in finding


@pytest.mark.parametrize("lifecycle", gates.RFC_SECTIONS)
def test_each_lifecycle_asks_for_its_sections_and_for_alternatives(lifecycle: str, tmp_path: Path) -> None:
    sections = gates.RFC_SECTIONS[lifecycle]
    path = f"{DOCS}/rfc/{lifecycle}/testing/2026-01-02-one-log.md"
    good = f"# One log\n\nStatus: {lifecycle}\n" + "".join(f"\n## {name}\n\nText.\n" for name in sections)
    assert found(gates.rfc_classification, tree(tmp_path, **{RFC_PATH: None, path: good})) == []
    assert "Alternatives" in sections
    for name in sections:
        bad = good.replace(f"## {name}\n", "## Something else\n")
        (finding,) = found(gates.rfc_classification, tree(tmp_path, **{path: bad}))
        assert f'has no section "## {name}"' in finding


# --- RFC index ----------------------------------------------------------------------------------------


def test_an_rfc_that_the_index_does_not_list_is_found(tmp_path: Path) -> None:
    path = f"{DOCS}/rfc/implemented/architecture/2026-01-03-two.md"
    assert found(gates.rfc_index, tree(tmp_path, **{path: RFC})) == [
        'docs/rfc/README.md:1: does not list "implemented/architecture/2026-01-03-two.md"'
    ]


def test_a_listed_rfc_that_is_not_there_is_found(tmp_path: Path) -> None:
    (finding,) = found(gates.rfc_index, tree(tmp_path, **{RFC_PATH: None}))
    assert finding == 'docs/rfc/README.md:7: lists "implemented/architecture/2026-01-02-one-log.md", which is not there'


def test_an_rfc_listed_twice_is_found(tmp_path: Path) -> None:
    index = INDEX + INDEX.splitlines(keepends=True)[-1]
    (finding,) = found(gates.rfc_index, tree(tmp_path, **{"docs/rfc/README.md": index}))
    assert finding.startswith("docs/rfc/README.md:8: lists ")
    assert finding.endswith("once more")


@pytest.mark.parametrize(("old", "new"), [("## Implemented", "## Proposed"), ("### Architecture", "### Bug fix")])
def test_an_rfc_under_a_wrong_heading_is_found(old: str, new: str, tmp_path: Path) -> None:
    index = INDEX.replace(old, new, 1)
    (finding,) = found(gates.rfc_index, tree(tmp_path, **{"docs/rfc/README.md": index}))
    assert 'instead of "implemented/architecture"' in finding


def test_a_second_listing_under_a_wrong_heading_is_found(tmp_path: Path) -> None:
    index = INDEX + "\n## Rejected\n\n### Process\n\n" + INDEX.splitlines(keepends=True)[-1]
    findings = found(gates.rfc_index, tree(tmp_path, **{"docs/rfc/README.md": index}))
    assert len(findings) == 2
    assert 'under "rejected/process"' in findings[1]


def test_a_missing_index_is_found(tmp_path: Path) -> None:
    assert found(gates.rfc_index, tree(tmp_path, **{"docs/rfc/README.md": None})) == [
        "docs/rfc/README.md:1: is missing; it lists every RFC"
    ]


# --- Paths and links ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("server/a.py", '"""First.\n\nSee {}.\n"""\n'),
        ("tests/test_a.py", 'FIRST = 1\n\nPAGE = "{}"\n'),
        ("editors/a.lua", "--\n--\n-- see {}\n"),
        ("editors/a.ts", "//\n//\n// see {}.\n"),
        ("tools/a.sh", "#\n#\n# see `{}`\n"),
        ("a.toml", "#\n#\n# see {}#section\n"),
        ("scripts/check", "#!/bin/sh\n#\n# see {}\n"),
    ],
)
def test_a_cited_document_that_is_not_there_is_found_with_file_and_line(path: str, text: str, tmp_path: Path) -> None:
    """Statement 73: a missing docs path cited in code: the gate fails with file and line."""
    root = tree(tmp_path, **{path: text.format(f"{DOCS}/gone.md")})
    assert found(gates.doc_citations, root) == [f'{path}:3: cites "{DOCS}/gone.md", which is not there']
    tree(tmp_path, **{f"{DOCS}/gone.md": "# Here\n"})
    assert found(gates.doc_citations, root) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[a](gone.md)", 'links to "gone.md", which is not there'),
        ("![a](gone.png)", 'links to "gone.png", which is not there'),
        ("[a][b]\n\n[b]: gone.md", 'links to "gone.md", which is not there'),
        ("[a](rfc/README.md#gone)", "but there is no such heading"),
        ("[a](#gone)", "but there is no such heading"),
        ("[a](../../outside.md)", "outside of the repository"),
        ("[a](/README.md)", "write it relative to this page"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(link: str, problem: str, tmp_path: Path) -> None:
    (finding,) = found(gates.markdown_links, tree(tmp_path, **{PAGE: f"# Page\n\nSee {link}\n"}))
    assert finding.startswith(f"{PAGE}:3: ")
    assert problem in finding


def test_a_dead_link_in_a_table_is_found_with_its_line(tmp_path: Path) -> None:
    page = "| a | b |\n|---|---|\n| 1 | 2 |\n| [a](gone.md) | 2 |\n"
    assert found(gates.markdown_links, tree(tmp_path, **{PAGE: page})) == [
        f'{PAGE}:4: links to "gone.md", which is not there'
    ]


@pytest.mark.parametrize(
    "link",
    [
        "[a](../README.md)",
        "[a](../README.md#small)",
        "[a](rfc)",
        "[a](#a-page--of-code-really)",
        "[a](#twice-1)",
        "[a](#mark)",
        "[a](https://example.org/gone.md#gone)",
        "[a](mailto:a@example.org)",
        "`[a](gone.md)`",
        "\n\n```text\n[a](gone.md)\n```",
        "[a](a%20b.md)",
    ],
)
def test_a_good_link_passes(link: str, tmp_path: Path) -> None:
    page = f'# A page — of `code`, really!\n\n## Twice\n\n## Twice\n\n<a id="mark"></a> See {link}\n'
    assert found(gates.markdown_links, tree(tmp_path, **{PAGE: page, f"{DOCS}/a b.md": "# B\n"})) == []


# --- Texts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "One line\nand another.\n",
        "- An item\n  goes on.\n",
        "- An item\ngoes on.\n",
        "> A quote\n> goes on.\n",
        "1. One\n\n   Two\n   three\n",
    ],
)
def test_a_paragraph_over_several_lines_is_found(text: str, tmp_path: Path) -> None:
    (finding,) = found(gates.one_line_paragraphs, tree(tmp_path, **{PAGE: f"# Page\n\n{text}"}))
    assert "a paragraph goes over 2 lines" in finding


def test_code_tables_and_single_lines_pass(tmp_path: Path) -> None:
    code = "```text\na\nb\n```\n\n    a\n    b\n"
    page = f"# Page\n\nOne.\n\n{code}\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two\n"
    assert found(gates.one_line_paragraphs, tree(tmp_path, **{PAGE: page})) == []


@pytest.mark.parametrize("host", gates.REGISTRY_HOSTS)
@pytest.mark.parametrize("name", ["page.md", "package-lock.json", "a.py", "scripts/setup"])
def test_a_registry_host_is_found(host: str, name: str, tmp_path: Path) -> None:
    (finding,) = found(gates.machine_traces, tree(tmp_path, **{name: f"#!\nhttps://files.{host}/simple\n"}))
    assert finding == f'{name}:2: names the registry host "{host}"; name the package alone'


@pytest.mark.parametrize("place", ["work", "root", "home/ada", "Users/ada"])
@pytest.mark.parametrize("form", ["/{}", "in /{}/x.py", '"/{}/x"', "file:///{}/x", "(/{})"])
def test_a_path_of_one_machine_is_found(place: str, form: str, tmp_path: Path) -> None:
    (finding,) = found(gates.machine_traces, tree(tmp_path, **{PAGE: "\n" + form.format(place)}))
    assert finding == f'{PAGE}:2: names "/{place}", a path of one machine'


@pytest.mark.parametrize(
    "text", ["/tmp/x", "$HOME/x", "home/ada", "a/root/b", "~/work", "/rooted", "https://a.org/work"]
)
def test_another_path_passes(text: str, tmp_path: Path) -> None:
    assert found(gates.machine_traces, tree(tmp_path, **{PAGE: text})) == []


@pytest.mark.parametrize("name", [PAGE, "server/a.py", "tests/core/test_a.py", "tests/README.md", "scripts/setup"])
@pytest.mark.parametrize("mention", [f"../{SHARED}", f"../../{SHARED}page.md", f"{SHARED}RIG", *PAGES])
def test_a_mention_of_the_folder_beside_the_repository_is_found(name: str, mention: str, tmp_path: Path) -> None:
    (finding,) = found(gates.outside_mentions, tree(tmp_path, **{name: f"\n# see {mention} section 4\n"}))
    assert finding == f'{name}:2: mentions "{mention}", which a clone does not have'


@pytest.mark.parametrize("text", ["what is shared", f"x/{SHARED}y", "docs/protocol/README.md", "PROTOCOL_TLS"])
def test_what_only_looks_like_one_passes(text: str, tmp_path: Path) -> None:
    assert found(gates.outside_mentions, tree(tmp_path, **{PAGE: f"# {text}\n"})) == []


def test_only_the_reader_of_the_cases_may_name_newer_ones(tmp_path: Path) -> None:
    line = f'NEWER = "../{SHARED}conformance"\n'
    assert found(gates.outside_mentions, tree(tmp_path, **{"tests/conformance/cases.py": line})) == []
    assert len(found(gates.outside_mentions, tree(tmp_path, **{"tests/models/test_a.py": line, PAGE: line}))) == 2


EXPLAINED = "# Tests\n\n- Statement 7: One.\n- S02, S02b: Two.\n- Rule 3: Three.\n\nStatement 8: no item.\n"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('"""Statements 7 and 12, and case S03."""', ["Statement 12", "S03"]),
        ('def test_a() -> None:\n    """Rules 3, 4 and 5:\n    S02b."""', ["Rule 4", "Rule 5"]),
        ("# Case L07.", ["L07"]),
        ('class A:\n    """As statement 8 has it."""', ["Statement 8"]),
    ],
)
def test_a_cited_id_that_nobody_explains_is_found(text: str, missing: list[str], tmp_path: Path) -> None:
    root = tree(tmp_path, **{"tests/core/test_a.py": f"{text}\n", "tests/README.md": EXPLAINED})
    findings = found(gates.cited_ids, root)
    assert [finding.split('"')[1] for finding in findings] == missing
    assert all(finding.startswith("tests/core/test_a.py:") for finding in findings)
    assert findings[0].endswith("which tests/README.md does not explain")


def test_what_is_explained_and_what_is_no_docstring_passes(tmp_path: Path) -> None:
    text = '"""Statement 7, rule 9 of something else, S02 and S02b; Rule 3."""\n\nNAME = "S99"\n'
    root = tree(tmp_path, **{"tests/core/test_a.py": text, "tests/README.md": EXPLAINED, "server/a.py": "# S99\n"})
    assert found(gates.cited_ids, root) == []


# --- Layout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", gates.COMMANDS)
def test_a_missing_command_is_found(name: str, tmp_path: Path) -> None:
    assert f"{name}:1: is missing" in found(gates.commands, tree(tmp_path, **{name: None}))


@pytest.mark.parametrize("name", gates.COMMANDS)
def test_a_command_that_cannot_be_run_is_found(name: str, tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / name).chmod(0o644)
    (finding,) = found(gates.commands, root)
    assert finding.startswith(f"{name}:1: starts with #! and is not executable")
    (root / name).write_text("scripts/test\n")
    assert found(gates.commands, root) == [f"{name}:1: has no #! line"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("README.md", "Run `scripts/demo`.\n", "README.md:1: does not name scripts/test"),
        ("README.md", "Run `scripts/test` or scripts/demo.py.\n", "README.md:1: does not name scripts/demo"),
        ("README.md", None, "README.md:1: is missing"),
        (".ci/run", "#!/bin/sh\n# scripts/test\n", ".ci/run:1: does not name scripts/test"),
    ],
)
def test_a_command_that_is_not_named_is_found(name: str, text: str | None, problem: str, tmp_path: Path) -> None:
    assert found(gates.commands, tree(tmp_path, **{name: text})) == [problem]


def test_what_scripts_and_tools_make_is_not_read(tmp_path: Path) -> None:
    made = [
        ".venv/a.md",
        ".tools/a.md",
        "node_modules/a.md",
        "x/__pycache__/a.md",
        "server/a.egg-info/a.md",
        "dist/a.md",
    ]
    root = tree(tmp_path, **dict.fromkeys(made, "# A\n\n/root/x\nand [a](gone.md)\n"))
    assert [finding for gate in gates.GATES for finding in gate(root)] == []
