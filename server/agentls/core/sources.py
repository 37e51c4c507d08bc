"""Who produced a message, and, on a second axis, what kind of information an injected one is."""

from __future__ import annotations

from dataclasses import dataclass

from agentls.core.ids import CallId, SessionId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.kinds import OpenUnion

SUMMARY_MAX = 120
"""Code points of a notice's summary, at most."""


def bound_summary(text: str) -> str:
    """`text` when it is at most 120 code points long, else its first 119 and an ellipsis."""
    return text if len(text) <= SUMMARY_MAX else text[: SUMMARY_MAX - 1] + "…"


# Context forms -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContextForm:
    """The open union of forms; tag `form`. A form cannot be made without the facts it is drawn from."""


@dataclass(frozen=True, slots=True)
class OpaqueForm(ContextForm):
    """A form that this version does not know, or whose facts are unreadable; kept whole, drawn as plain text."""

    kind: str
    fields: JsonObject


FORMS: OpenUnion[ContextForm] = OpenUnion("context form", tag="form", unknown=OpaqueForm, keep_unreadable=True)


def _required(form: str, **facts: object) -> None:
    for name, fact in facts.items():
        if not fact:
            raise ValueError(f'a context of form "{form}" needs {name}')


@FORMS.register("instructions")
@dataclass(frozen=True, slots=True)
class Instructions(ContextForm):
    """Text from files that the model is expected to follow; `paths` names them."""

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        _required("instructions", paths=self.paths and all(self.paths))


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One available item."""

    name: str
    description: str


@FORMS.register("catalog")
@dataclass(frozen=True, slots=True)
class Catalog(ContextForm):
    """What is available, published again as it changes; an empty one retires everything."""

    entries: tuple[CatalogEntry, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One named part of a snapshot."""

    name: str
    text: str


@FORMS.register("snapshot")
@dataclass(frozen=True, slots=True)
class Snapshot(ContextForm):
    """Current state; a later one of the same producer supersedes it."""

    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        _required("snapshot", sections=self.sections and all(section.name for section in self.sections))


@FORMS.register("notice")
@dataclass(frozen=True, slots=True)
class Notice(ContextForm):
    """Something just happened; `summary` is one line of at most 120 code points."""

    summary: str

    def __post_init__(self) -> None:
        _required("notice", summary=self.summary)
        if len(self.summary) > SUMMARY_MAX:
            raise ValueError(f"a summary is at most {SUMMARY_MAX} characters long, not {len(self.summary)}")


@FORMS.register("relay")
@dataclass(frozen=True, slots=True)
class Relay(ContextForm):
    """A message that another agent addressed to this one."""

    sender: SessionId

    def __post_init__(self) -> None:
        _required("relay", sender=self.sender)


@dataclass(frozen=True, slots=True)
class Recalled:
    """One session that material was taken from, and how much of it was left out; counts are messages."""

    session_id: SessionId
    label: str
    retained: int
    omitted: int
    truncated: bool


@FORMS.register("recall")
@dataclass(frozen=True, slots=True)
class Recall(ContextForm):
    """Material lifted from other sessions, possibly reduced."""

    references: tuple[Recalled, ...]

    def __post_init__(self) -> None:
        _required("recall", references=self.references and all(ref.label for ref in self.references))


# Sources -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageSource:
    """The open union of sources; tag `kind`. Policy asks `is_person`, never the text."""


@dataclass(frozen=True, slots=True)
class UnknownSource(MessageSource):
    """A source of a kind that this version does not know, kept as it came; drawn as an opaque row."""

    kind: str
    fields: JsonObject


SOURCES: OpenUnion[MessageSource] = OpenUnion("source", tag="kind", unknown=UnknownSource, keep_unreadable=True)


@SOURCES.register("user")
@dataclass(frozen=True, slots=True)
class UserSource(MessageSource):
    """A person wrote it. Only the server stamps this, and never on an injected message."""


@SOURCES.register("plugin")
@dataclass(frozen=True, slots=True)
class PluginSource(MessageSource):
    """A producer wrote it; `plugin` is its name, `mark` what ends its frame (frames.py)."""

    plugin: str
    context: ContextForm
    mark: str = ""


@SOURCES.register("model")
@dataclass(frozen=True, slots=True)
class ModelSource(MessageSource):
    """A model wrote it; `replay_state` is what its provider wants back, opaque to everyone else."""

    provider: str
    model: str
    replay_state: JsonValue = None


@SOURCES.register("tool")
@dataclass(frozen=True, slots=True)
class ToolSource(MessageSource):
    """A tool's result."""

    call_id: CallId


@SOURCES.register("agent-instructions")
@dataclass(frozen=True, slots=True)
class InstructionsSource(MessageSource):
    """The workspace's instruction files; `mark` ends its frame."""

    context: ContextForm
    mark: str = ""


@SOURCES.register("hook")
@dataclass(frozen=True, slots=True)
class HookSource(MessageSource):
    """Whatever an external program printed; it has no form by design, since no shape can be promised. `mark` ends its
    frame."""

    hook: str
    mark: str = ""


def is_person(source: MessageSource) -> bool:
    """Whether a person wrote it."""
    return isinstance(source, UserSource)


def form_of(source: MessageSource) -> ContextForm | None:
    """The context form of a source that declares one."""
    return source.context if isinstance(source, PluginSource | InstructionsSource) else None


def producer_of(source: MessageSource) -> str:
    """The name to show for who produced a message."""
    if isinstance(source, UnknownSource):
        return source.kind
    if isinstance(source, PluginSource):
        return source.plugin
    if isinstance(source, HookSource):
        return source.hook
    return SOURCES.kind_of(source) or "unknown"
