"""Which models there are: a row for each, and how a name becomes a model that can be asked.

A provider with a known dialect is a row here and nothing else. What a row's dialect means is the composition root's
business: it gives an opener for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from agentls.core.errors import UserError
from agentls.core.events import ModelRef
from agentls.core.json import JsonObject
from agentls.models.model import Model, ModelFacts

CONTEXT_WINDOW = 32_768
"""Tokens assumed for an endpoint whose settings do not say; most servers of today take at least as many."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The facts of one model.

    `base_url` is what the dialect's path is appended to (for `scripted`: the path of the script, empty for the demo's);
    `key_variable` names the environment variable that holds the key, None where none is needed; `context_window` and
    `max_tokens` are tokens; `takes_tools` says whether it is told of any; `options` go into every request unless the
    agent's own say otherwise. With `think_tags` the model writes its reasoning into its text, between `<think>` and
    `</think>`.
    """

    provider: str
    id: str
    dialect: str
    base_url: str = ""
    key_variable: str | None = None
    context_window: int = CONTEXT_WINDOW
    max_tokens: int | None = None
    think_tags: bool = False
    takes_tools: bool = True
    options: JsonObject = field(default_factory=dict)

    @property
    def ref(self) -> ModelRef:
        """Its name in the log."""
        return ModelRef(self.provider, self.id)

    @property
    def name(self) -> str:
        """Its name for people: `provider/id`."""
        return f"{self.provider}/{self.id}"


LOCAL = ModelRow(
    provider="local",
    id="smollm2",
    dialect="local",
    context_window=2048,
    max_tokens=768,  # beyond that so small a model only repeats itself
    takes_tools=False,  # it cannot call them, and their schemas would fill half of its window
)
"""The embedded SmolLM2 135M: needs the `local` extra and its weights, no key and no network."""

DEMO = ModelRow(
    provider="demo",
    id="demo",
    dialect="scripted",
    context_window=8192,
)
"""The built-in script: works everywhere."""


def endpoint(
    base_url: str,
    model: str,
    *,
    provider: str = "openai",
    key_variable: str | None = None,
    context_window: int = CONTEXT_WINDOW,
    max_tokens: int | None = None,
    think_tags: bool = False,
    options: JsonObject | None = None,
) -> ModelRow:
    """The row of an OpenAI-compatible server, from a person's settings; UserError where they cannot be right."""
    address = urlsplit(base_url.strip())
    try:
        usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # the port is no number, or too large
        usable = False
    if not usable:
        raise UserError(f'base url "{base_url}" is not an address; write it like "https://api.example.com/v1"')
    if address.username is not None or address.password is not None:
        # It would end up in messages and logs.
        raise UserError(
            f'the base url for "{address.hostname}" holds a name or password; '
            "put the key into an environment variable and name that"
        )
    if address.query or address.fragment:
        raise UserError(f'base url "{base_url}" has a "?" or "#"; write only what comes before "/chat/completions"')
    for what, text in (("model id", model), ("provider name", provider)):
        if not text or text != text.strip() or not text.isprintable():
            raise UserError(f'{what} "{text}" is empty or has spaces around it; write it as the provider does')
    return ModelRow(
        provider=provider,
        id=model,
        dialect="openai-chat",
        base_url=base_url.strip().rstrip("/"),
        key_variable=key_variable,
        context_window=context_window,
        max_tokens=max_tokens,
        think_tags=think_tags,
        options={} if options is None else options,
    )


class Opener(Protocol):
    """Makes the models of all rows of one dialect, and owns what it started for them."""

    def open(self, row: ModelRow) -> Model:
        """The model of a row; nothing is started yet. A row that cannot be right is a UserError."""

    def problem(self, row: ModelRow) -> str | None:
        """Why no request can work, as far as can be told without the network, and what to do; None where one can. It
        is asked often, so it is cheap."""

    async def close(self) -> None:
        """End what was started; may be called twice."""


class Catalog:
    """The `Models` of a server: rows in order of preference, each opened at most once."""

    def __init__(self, rows: Sequence[ModelRow], openers: Mapping[str, Opener], choice: str | None = None) -> None:
        """`openers` has one for each dialect of `rows`; `choice` is what a person named as their default."""
        if not rows:
            raise ValueError("a catalog needs at least one row")
        missing = {row.dialect for row in rows} - openers.keys()
        if missing:
            raise ValueError(f"no opener for {', '.join(sorted(missing))}")
        self._rows: dict[ModelRef, ModelRow] = {}
        for row in rows:
            if row.ref in self._rows:
                raise UserError(f'model "{row.name}" is configured twice; give one of them another provider name')
            self._rows[row.ref] = row
        self._openers = openers
        self._choice = choice
        self._open: dict[ModelRef, Model] = {}

    @property
    def rows(self) -> tuple[ModelRow, ...]:
        """All rows, in order of preference."""
        return tuple(self._rows.values())

    def all(self) -> tuple[ModelFacts, ...]:
        """All models in order of preference, as they are now: what each lacks is looked up anew."""
        return tuple(self._facts(row) for row in self.rows)

    def default(self) -> ModelRef:
        """The person's choice (a UserError where it names none of the rows), else the first row that is usable."""
        if self._choice is not None:
            return self.find(self._choice)
        return next((ref for ref in self._rows if self.usable(ref)), self.rows[0].ref)

    def find(self, text: str) -> ModelRef:
        """The model that `provider/id`, or an id alone where it is unique, names."""
        named = [row for row in self.rows if row.name == text] or [row for row in self.rows if row.id == text]
        if len(named) == 1:
            return named[0].ref
        if named:
            raise UserError(f'model "{text}" is there more than once; pick one of {_listed(named)}')
        raise UserError(f'model "{text}" is not in the catalog; pick one of {_listed(self.rows)}')

    def open(self, ref: ModelRef) -> Model:
        """The model of a row, the same object for all who ask."""
        model = self._open.get(ref)
        if model is None:
            row = self._row(ref)
            model = self._open[ref] = self._openers[row.dialect].open(row)
        return model

    def usable(self, ref: ModelRef) -> bool:
        """Whether a request to it could work; False for one that is not in the catalog."""
        row = self._rows.get(ref)
        return row is not None and self._openers[row.dialect].problem(row) is None

    async def close(self) -> None:
        """End what the openers started."""
        for opener in self._openers.values():
            await opener.close()

    def _facts(self, row: ModelRow) -> ModelFacts:
        problem = self._openers[row.dialect].problem(row)
        key_source = None if row.key_variable is None else f"environment variable {row.key_variable}"
        return ModelFacts(
            row.ref,
            usable=problem is None,
            context_window=row.context_window,
            key_source=key_source,
            problem=problem,
        )

    def _row(self, ref: ModelRef) -> ModelRow:
        row = self._rows.get(ref)
        if row is None:
            raise UserError(
                f'model "{ref.provider}/{ref.id}" is not in the catalog any more; pick one of {_listed(self.rows)}'
            )
        return row


def _listed(rows: Sequence[ModelRow]) -> str:
    return ", ".join(f'"{row.name}"' for row in rows)
