"""What an editor tells of its documents, of what the person looks at and of files on disk reaches the host."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import cast

import pytest

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.server import Hub
from agentls.workspace.documents import Buffer
from agentls.workspace.editor import NO_FOCUS, Focus
from agentls.workspace.positions import Position, Range
from agentls.workspace.uris import to_path, to_uri
from tests.lsp.clients import AGENT, Client, Served, serving
from tests.lsp.doubles import FakeHost

URI = "file:///w/a.py"


def open_document(client: Client, text: str, uri: str = URI) -> None:
    document: JsonObject = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": document})


def change(client: Client, *changes: JsonObject, uri: str = URI, version: JsonValue = 2) -> None:
    params: JsonObject = {"textDocument": {"uri": uri, "version": version}, "contentChanges": changes}
    client.notify("textDocument/didChange", params)


def places(*numbers: int) -> Range:
    """The same as the workspace knows it."""
    first, start, last, end = numbers
    return Range(Position(first, start), Position(last, end))


def span(*places: int) -> JsonObject:
    """A range from start line and character to end line and character."""
    first, start, last, end = places
    return {"start": {"line": first, "character": start}, "end": {"line": last, "character": end}}


def buffer(host: FakeHost, uri: str = URI) -> Buffer:
    (only,) = host.documents.at(to_path(uri))
    return only


def focus(host: FakeHost) -> Focus:
    return host.documents.editors()[0].focus


# Text sync -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", [AGENT, None])
async def test_any_client_tells_what_it_has_open(served: Served, host: FakeHost, extension: JsonValue) -> None:
    client = await served.connect()
    await client.start(extension)
    open_document(client, "one\ntwo\n")
    change(client, {"range": span(1, 0, 1, 3), "text": "zwei"}, {"range": span(0, 0, 0, 0), "text": "# "})
    await client.heard()
    assert (buffer(host).text, buffer(host).version) == ("# one\nzwei\n", 2)
    change(client, {"text": "all of it"}, version=3)
    await client.heard()
    assert (buffer(host).text, buffer(host).version) == ("all of it", 3)
    client.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    await client.heard()
    assert host.documents.at(to_path(URI)) == ()


@pytest.mark.parametrize(("encoding", "units"), [("utf-8", 7), ("utf-16", 4), ("utf-32", 3)])
async def test_positions_count_in_the_encoding_that_was_agreed_on(
    served: Served, host: FakeHost, encoding: str, units: int
) -> None:
    client = await served.connect()
    await client.start(general={"positionEncodings": [encoding]})
    open_document(client, "é🙂xyz")
    change(client, {"range": span(0, units, 0, units + 1), "text": "Y"})
    await client.heard()
    assert buffer(host).text == "é🙂xYz"
    assert host.documents.editors()[0].encoding == encoding


async def test_a_save_tells_that_it_is_on_disk_with_the_text_or_without(
    client: Client, host: FakeHost, tmp_path: Path
) -> None:
    uri = to_uri(tmp_path / "a.py")
    open_document(client, "", uri)
    change(client, {"text": "changed"}, uri=uri)
    await client.heard()
    assert buffer(host, uri).dirty
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    await client.heard()
    assert not buffer(host, uri).dirty
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}, "text": "formatted"})
    await client.heard()
    assert (buffer(host, uri).text, buffer(host, uri).dirty) == ("formatted", False)


async def test_each_connection_is_an_editor_of_its_own_until_it_ends(served: Served, host: FakeHost) -> None:
    one, two = await served.started(), await served.connect()
    await two.start(None)
    open_document(one, "mine")
    open_document(two, "yours")
    await one.heard()
    await two.heard()
    assert {(editor.id, editor.name) for editor in host.documents.editors()} == {
        ("instance-1:1", "tester 1.0"),
        ("instance-1:2", "plain 0"),
    }
    assert {opened.text for opened in host.documents.at(to_path(URI))} == {"mine", "yours"}
    two.vanish()
    await asyncio.wait_for(served.runs[1], 20)
    assert [editor.id for editor in host.documents.editors()] == ["instance-1:1"]
    assert buffer(host).text == "mine"


async def test_who_never_initialized_is_no_editor(served: Served, host: FakeHost) -> None:
    client = await served.connect()
    open_document(client, "early")
    await client.refusal("agent/list")
    assert host.documents.editors() == ()


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "output:extension", "git:/w/a.py?ref", "file://host/share/a"])
async def test_a_document_that_is_no_file_is_passed_over_without_a_word(
    client: Client, host: FakeHost, caplog: pytest.LogCaptureFixture, uri: str
) -> None:
    open_document(client, "text", uri)
    change(client, {"text": "more"}, uri=uri)
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    client.notify("agent/editorState", {"openUris": [uri, URI]})
    client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri, "type": 2}]})
    await client.heard()
    assert host.documents.all_unsaved() == ()
    assert focus(host) == Focus(open=(URI,))
    assert host.told == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "output:extension", "git:/w/a.py?ref", "file://host/share/a"])
async def test_what_is_no_file_is_known_as_looked_at_and_unsaved(client: Client, host: FakeHost, uri: str) -> None:
    open_document(client, "text", uri)
    looked: JsonObject = {"activeUri": uri, "selections": [span(0, 0, 0, 1)], "dirtyUris": [uri, "", URI]}
    client.notify("agent/editorState", looked)
    await client.heard()
    assert focus(host) == Focus(uri, (places(0, 0, 0, 1),), dirty=(uri, URI), selected_at=1)
    assert host.documents.all_unsaved() == ()
    client.notify("agent/editorState", {"activeUri": "", "dirtyUris": []})
    await client.heard()
    assert focus(host) == NO_FOCUS


async def test_a_document_that_was_not_opened_is_one_warning(
    client: Client, host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        change(client, {"text": "a secret of the person"}, version=number)
    client.notify("textDocument/didSave", {"textDocument": {"uri": URI}, "text": "a secret of the person"})
    client.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    await client.heard()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert URI in record.getMessage()
    open_document(client, "now")
    await client.heard()
    assert buffer(host).text == "now"


async def test_a_link_that_leads_nowhere_is_one_warning(
    client: Client, host: FakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    open_document(client, "a secret of the person", to_uri(tmp_path / "a"))
    change(client, {"text": "a secret of the person"}, uri=to_uri(tmp_path / "a"))
    await client.heard()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "a secret" not in caplog.text
    assert host.documents.all_unsaved() == ()


async def test_a_range_outside_of_the_text_is_its_end(client: Client, host: FakeHost) -> None:
    open_document(client, "one\ntwo")
    change(client, {"range": span(7, 9, 9, 1), "text": "!"}, {"range": span(0, 99, 0, 400), "text": "?"})
    await client.heard()
    assert buffer(host).text == "one?\ntwo!"


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("textDocument/didOpen", {"textDocument": "a secret of the person"}, "textDocument"),
        ("textDocument/didOpen", {"textDocument": {"uri": URI, "text": "a secret"}}, "textDocument.version"),
        ("textDocument/didChange", {"contentChanges": ["a secret of the person"]}, "textDocument"),
        ("textDocument/didSave", None, "textDocument"),
        ("textDocument/didClose", {"textDocument": {"uri": ["a secret"]}}, "textDocument.uri"),
        ("agent/editorState", {"selections": [{"start": "a secret"}]}, "selections[0].start"),
        ("workspace/didChangeWatchedFiles", {"changes": "a secret"}, "changes"),
        ("window/workDoneProgress/cancel", {"token": ["a secret"]}, "token"),
    ],
)
async def test_a_malformed_notification_is_a_warning_of_where_and_changes_nothing(
    client: Client, host: FakeHost, caplog: pytest.LogCaptureFixture, method: str, params: JsonValue, path: str
) -> None:
    open_document(client, "as it was")
    client.notify(method, params)
    await client.heard()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"a client's {method} is left out: its {path} is wrong"
    assert record.exc_info is None
    assert buffer(host).text == "as it was"


@pytest.mark.parametrize(
    ("document", "changes", "path"),
    [
        ({"version": 2}, ["a secret of the person"], "contentChanges[0]"),
        (
            {"version": 2},
            [{"text": "a secret"}, {"range": span(0, -1, 0, 0), "text": "a secret"}],
            "contentChanges[1].range.start.character",
        ),
        ({"version": "a secret"}, [{"text": "a secret"}], "textDocument.version"),
    ],
)
async def test_a_change_that_cannot_be_read_forgets_the_document_until_all_of_it_is_told(
    client: Client,
    host: FakeHost,
    caplog: pytest.LogCaptureFixture,
    document: JsonObject,
    changes: JsonValue,
    path: str,
) -> None:
    open_document(client, "as it was")
    client.notify("textDocument/didChange", {"textDocument": {"uri": URI, **document}, "contentChanges": changes})
    change(client, {"range": span(0, 0, 0, 2), "text": "a secret"}, version=3)
    client.notify("textDocument/didSave", {"textDocument": {"uri": URI}})
    await client.heard()
    assert host.documents.at(to_path(URI)) == ()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert f"its {path} is wrong" in caplog.text
    assert "secret" not in caplog.text
    change(client, {"range": span(9, 9, 9, 9), "text": "?"}, {"text": "all"}, {"range": span(0, 3, 0, 3), "text": "!"})
    await client.heard()
    assert buffer(host).text == "all!"
    assert len(caplog.records) == 2


@pytest.mark.parametrize("closes", [True, False])
async def test_a_forgotten_document_may_be_opened_anew(
    client: Client, host: FakeHost, caplog: pytest.LogCaptureFixture, *, closes: bool
) -> None:
    open_document(client, "as it was")
    change(client, {"text": "more", "range": {}})
    if closes:
        client.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    open_document(client, "anew")
    change(client, {"range": span(0, 0, 0, 1), "text": "A"})
    await client.heard()
    assert buffer(host).text == "Anew"
    assert len(caplog.records) == 2


@pytest.mark.parametrize("document", [{"uri": URI, "version": None}, {"uri": URI}])
async def test_a_change_without_a_version_is_counted_on(client: Client, host: FakeHost, document: JsonObject) -> None:
    open_document(client, "one\ntwo")
    changes: JsonValue = [{"range": span(0, 0, 1, 0), "text": ""}]
    client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})
    await client.heard()
    assert (buffer(host).text, buffer(host).version) == ("two", 2)


async def test_texts_are_never_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        open_document(client, "a secret of the person")
        change(client, {"text": "another secret of the person"})
        client.notify("textDocument/didSave", {"textDocument": {"uri": URI}, "text": "a secret of the person"})
        await client.heard()
    assert "secret" not in caplog.text


async def test_changes_are_taken_in_order_and_a_request_between_them_sees_those_before_it(
    client: Client, host: FakeHost
) -> None:
    """Case L13."""
    open_document(client, "")
    for number in range(300):
        change(client, {"range": span(0, number, 0, number), "text": str(number % 10)}, version=number + 2)
    await client.heard()
    assert buffer(host).text == "".join(str(number % 10) for number in range(300))
    assert buffer(host).version == 301


# What the person looks at --------------------------------------------------------------------------------------


async def test_an_editor_tells_what_the_person_looks_at(client: Client, host: FakeHost) -> None:
    open_document(client, "one\n🙂 two\nthree")
    client.notify(
        "agent/editorState",
        {
            "activeUri": URI,
            "selections": [span(1, 3, 1, 6), span(2, 5, 2, 0)],
            "visibleRanges": [span(0, 0, 90, 0)],
            "openUris": [URI, "file:///w/b.py"],
            "dirtyUris": [URI],
        },
    )
    await client.heard()
    assert focus(host) == Focus(
        active=URI,
        selections=(places(1, 3, 1, 6), places(2, 0, 2, 5)),
        visible=((0, 90),),
        open=(URI, "file:///w/b.py"),
        dirty=(URI,),
        selected_at=2,
    )


async def test_a_selection_is_older_than_a_change_that_comes_after_it(client: Client, host: FakeHost) -> None:
    client.notify("agent/editorState", {"activeUri": URI, "selections": [span(5, 9, 4, 2)]})
    open_document(client, "as it was selected")
    await client.heard()
    assert focus(host).selections == (places(4, 2, 5, 9),)
    assert buffer(host).changed < focus(host).selected_at, "an opened text is the one that was selected in"
    change(client, {"text": "another"})
    client.notify("agent/editorState", {"dirtyUris": [URI]})
    await client.heard()
    assert buffer(host).changed > focus(host).selected_at
    client.notify("agent/editorState", {"selections": [span(0, 0, 0, 1)]})
    await client.heard()
    assert buffer(host).changed < focus(host).selected_at


async def test_what_is_left_out_stays_and_null_is_none(client: Client, host: FakeHost) -> None:
    client.notify("agent/editorState", {"activeUri": URI, "selections": [span(1, 1, 1, 1)], "openUris": [URI]})
    client.notify("agent/editorState", {"dirtyUris": [URI], "visibleRanges": [span(0, 0, 9, 0)]})
    await client.heard()
    known = Focus(URI, (places(1, 1, 1, 1),), ((0, 9),), (URI,), (URI,), selected_at=1)
    assert focus(host) == known
    client.notify("agent/editorState", {})
    client.notify("agent/editorState")
    await client.heard()
    assert focus(host) == known
    client.notify("agent/editorState", {"activeUri": "file:///w/b.py", "dirtyUris": None})
    await client.heard()
    assert focus(host) == Focus("file:///w/b.py", open=(URI,))
    client.notify("agent/editorState", {"activeUri": None, "selections": [span(1, 1, 1, 1)], "openUris": []})
    await client.heard()
    assert focus(host) == NO_FOCUS


async def test_the_editor_that_told_last_is_the_active_one(served: Served, host: FakeHost) -> None:
    one, two = await served.started(), await served.started()
    for client, name in ((two, "instance-1:2"), (one, "instance-1:1"), (two, "instance-1:2")):
        client.notify("agent/editorState", {"activeUri": URI})
        await client.heard()
        assert host.documents.editors()[0].id == name


# Files on disk -------------------------------------------------------------------------------------------------


async def test_changed_files_are_told_to_the_host(client: Client, host: FakeHost) -> None:
    changes: JsonValue = [
        {"uri": "file:///w/a%20b.py", "type": 1},
        {"uri": "untitled:x", "type": 2},
        {"uri": "file:///w/c.py", "type": 3},
    ]
    client.notify("workspace/didChangeWatchedFiles", {"changes": changes})
    await client.heard()
    assert host.told == [(Path("/w/a b.py"), Path("/w/c.py"))]


WATCHES: JsonObject = {"didChangeWatchedFiles": {"dynamicRegistration": True}}


@pytest.mark.parametrize("extension", [AGENT, None])
async def test_a_client_that_can_is_asked_to_tell_of_all_files_once(served: Served, extension: JsonValue) -> None:
    client = await served.connect()
    await client.start(extension, workspace=WATCHES)
    asked = await client.requests.get()
    client.notify("initialized", {})
    await client.heard()
    assert asked["method"] == "client/registerCapability"
    (registration,) = cast(list[JsonObject], cast(JsonObject, asked["params"])["registrations"])
    assert registration["method"] == "workspace/didChangeWatchedFiles"
    assert registration["registerOptions"] == {"watchers": [{"globPattern": "**/*"}]}
    client.send({"jsonrpc": "2.0", "id": asked["id"], "result": None})
    await client.heard()
    assert client.requests.empty()


@pytest.mark.parametrize("workspace", [None, {}, {"didChangeWatchedFiles": {}}])
async def test_another_client_is_not_asked(served: Served, workspace: JsonValue) -> None:
    client = await served.connect()
    await client.start(workspace=workspace)
    await client.heard()
    assert client.requests.empty()


async def test_a_client_that_refuses_to_tell_of_files_is_served_all_the_same(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client = await served.connect()
    await client.start(workspace=WATCHES)
    asked = await client.requests.get()
    client.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "not here"}})
    await client.heard()
    assert (await client.call("agent/list"))["agents"]
    assert "a client does not tell which files change: not here" in caplog.text


async def test_a_client_that_leaves_without_an_answer_leaves_nothing(host: FakeHost) -> None:
    async with serving(Hub(host)) as served:
        client = await served.connect()
        await client.start(workspace=WATCHES)
        await client.requests.get()
        client.vanish()
        await asyncio.wait_for(served.runs[0], 20)
        assert host.documents.editors() == ()
        assert host.list_listeners == []
