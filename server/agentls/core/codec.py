"""Core values to JSON and back: camelCase keys, defaults left out, strict about types, open about kinds.

A field whose value is its default is not written, so that the log stays small and a later default is never baked in
by accident: a default is a promise for good.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from agentls.core.blocks import BLOCKS, ContentBlock
from agentls.core.errors import DecodeError, UnsupportedFormat
from agentls.core.events import EVENTS, SURFACE, Event, EventData
from agentls.core.json import JsonObject, JsonValue
from agentls.core.kinds import OpenUnion
from agentls.core.reasons import (
    FINISHES,
    TRIGGERS,
    TURN_ENDS,
    FinishReason,
    TurnEndReason,
    TurnTrigger,
)
from agentls.core.shown import shown
from agentls.core.sources import FORMS, SOURCES, ContextForm, MessageSource

T = TypeVar("T")

UNIONS: Mapping[type[Any], OpenUnion[Any]] = {
    ContentBlock: BLOCKS,
    MessageSource: SOURCES,
    ContextForm: FORMS,
    FinishReason: FINISHES,
    TurnTrigger: TRIGGERS,
    TurnEndReason: TURN_ENDS,
    EventData: EVENTS,
}
"""Each open union by its base class."""


def camel(name: str) -> str:
    """`tool_call_id` -> `toolCallId`."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def encode(value: object) -> JsonObject:
    """The JSON object of a core value."""
    return cast(JsonObject, _CONVERTER.unstructure(value))


def decode(cls: type[T], raw: JsonValue) -> T:
    """The value of class `cls` in `raw`; a record that does not fit is a DecodeError that names the path."""
    try:
        return _CONVERTER.structure(raw, cls)
    except (DecodeError, UnsupportedFormat):
        raise
    except Exception as error:
        path, message = _innermost(error)
        raise DecodeError(message, path) from error


def encode_event(event: Event) -> JsonObject:
    """An event as one flat envelope: `{seq, time, type, data, surfaceOp?, ignorable?}`."""
    data = dict(encode(event.data))
    line: dict[str, JsonValue] = {"seq": event.seq, "time": event.time, "type": data.pop("type"), "data": data}
    if isinstance(event.data, SURFACE):
        line["surfaceOp"] = "append"
    if event.ignorable:
        line["ignorable"] = True
    return line


def decode_event_data(kind: str, data: JsonObject, *, ignorable: bool) -> EventData:
    """The payload of an event; an unknown type is refused unless its writer marked it as ignorable."""
    if EVENTS.type_for(kind) is None and not ignorable:
        raise UnsupportedFormat(
            f'the log holds an event of type "{kind}" that this version does not know; upgrade agentls'
        )
    return decode(EventData, {**data, "type": kind})


# The converter -------------------------------------------------------------------------------------------------

_CONVERTER = cattrs.Converter(detailed_validation=True)


def _exactly(kind: type[T], name: str) -> Callable[[object, object], T]:
    def check(raw: object, _: object) -> T:
        # bool is an int to Python and never one to JSON.
        if not isinstance(raw, kind) or (isinstance(raw, bool) and kind is not bool):
            raise DecodeError(f"expected {name}, not {shown(raw)}")
        return raw

    return check


def _as_is(raw: object, _: object) -> object:
    return raw


def _is_json(hint: object) -> bool:
    # Resolving annotations rebuilds the recursive alias, so it is known by its shape: only JSON holds a float here.
    return typing.get_origin(hint) is Mapping or float in typing.get_args(hint)


def _dataclass_decoder(cls: type[Any]) -> Callable[[Any, Any], Any]:
    _resolve(cls)
    plain = make_dict_structure_fn(cls, _CONVERTER, **_renamed(cls))

    def structure(raw: Any, hint: Any) -> Any:
        if not isinstance(raw, Mapping):
            raise DecodeError(f"expected an object, not {shown(raw)}")
        return plain(raw, hint)

    return structure


def _dataclass_encoder(cls: type[Any]) -> Callable[[Any], Any]:
    _resolve(cls)
    return make_dict_unstructure_fn(cls, _CONVERTER, _cattrs_omit_if_default=True, **_renamed(cls))


def _renamed(cls: type[Any]) -> Any:
    return {field.name: override(rename=camel(field.name)) for field in dataclasses.fields(cls)}


def _resolve(cls: type[Any]) -> None:
    # Annotations are texts (PEP 563); cattrs reads `field.type`, so they are resolved once a class.
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        field.type = hints[field.name]


def _union_decoder(base: type[Any]) -> Callable[[Any, Any], Any]:
    union = UNIONS[base]

    def structure(raw: Any, _: Any) -> Any:
        if not isinstance(raw, Mapping):
            raise DecodeError(f"expected an object, not {shown(raw)}")
        kind = raw.get(union.tag)
        if not isinstance(kind, str) or not kind:
            raise DecodeError(f'a {union.name} needs a text "{union.tag}", not {shown(kind)}')
        cls = union.type_for(kind)
        if cls is not None:
            try:
                return _CONVERTER.structure(raw, cls)
            except Exception:
                if not union.keep_unreadable:
                    raise
        return union.unknown(kind, {name: value for name, value in raw.items() if name != union.tag})

    return structure


def _kind_encoder(cls: type[Any]) -> Callable[[Any], Any]:
    union = next(union for base, union in UNIONS.items() if issubclass(cls, base))
    if hasattr(cls, "__dataclass_fields__") and set(cls.__dataclass_fields__) == {"kind", "fields"}:
        return lambda value: {union.tag: value.kind, **value.fields}
    plain = _dataclass_encoder(cls)
    return lambda value: {union.tag: union.kind_of(value), **plain(value)}


def _list_of(hint: Any) -> Callable[[Any, Any], Any]:
    (item, _) = typing.get_args(hint)

    def structure(raw: Any, _: Any) -> Any:
        if not isinstance(raw, list | tuple):
            raise DecodeError(f"expected a list, not {shown(raw)}")
        out = []
        for index, element in enumerate(raw):
            try:
                out.append(_CONVERTER.structure(element, item))
            except UnsupportedFormat:
                raise
            except Exception as error:
                path, message = _innermost(error)
                raise DecodeError(
                    message, f"[{index}]" + (path if path.startswith("[") or not path else f".{path}")
                ) from error
        return tuple(out)

    return structure


def _innermost(error: BaseException) -> tuple[str, str]:
    """Where and why, from the first leaf of cattrs' grouped errors."""
    if isinstance(error, DecodeError):
        message = str(error)
        return error.path, message.removeprefix(f"{error.path}: ") if error.path else message
    if isinstance(error, BaseExceptionGroup):
        first = error.exceptions[0]
        name = next(
            (camel(note.name) for note in getattr(first, "__notes__", ()) if hasattr(note, "name")),
            "",
        )
        path, message = _innermost(first)
        joint = "" if not path or not name or path.startswith("[") else "."
        return f"{name}{joint}{path}", message
    if isinstance(error, KeyError):
        return "", "is missing"
    return "", str(error) or type(error).__name__


def _set_up() -> None:
    bases = tuple(UNIONS)
    for kind, name in ((str, "a text"), (int, "a whole number"), (bool, "true or false")):
        _CONVERTER.register_structure_hook(kind, _exactly(kind, name))
    _CONVERTER.register_structure_hook_func(_is_json, _as_is)
    _CONVERTER.register_unstructure_hook_func(_is_json, lambda value: value)
    _CONVERTER.register_structure_hook_factory(lambda hint: typing.get_args(hint)[1:] == (Ellipsis,), _list_of)
    _CONVERTER.register_structure_hook_factory(dataclasses.is_dataclass, _dataclass_decoder)
    _CONVERTER.register_unstructure_hook_factory(
        lambda hint: dataclasses.is_dataclass(hint) and not issubclass(cast(type, hint), bases), _dataclass_encoder
    )
    _CONVERTER.register_structure_hook_factory(lambda hint: hint in UNIONS, _union_decoder)
    _CONVERTER.register_unstructure_hook_factory(
        lambda hint: isinstance(hint, type) and issubclass(hint, bases) and hint not in UNIONS, _kind_encoder
    )
    # A field typed as the base class is encoded by what it holds; matched exactly, since hooks by class also take
    # the subclasses and would call themselves.
    _CONVERTER.register_unstructure_hook_func(
        lambda hint: hint in UNIONS, lambda value: _CONVERTER.unstructure(value, type(value))
    )


_set_up()
