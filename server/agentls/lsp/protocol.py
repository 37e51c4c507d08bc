"""JSON-RPC for one connection: envelopes, answers, cancellation.

It is pygls' protocol with the parts replaced that would leave a request without an answer, mistake data for an
envelope, show a traceback to the client, or end the process. What is used of pygls 2.1.1 are its requests to the
client (`send_request_async`, and the typed calls of the server object).
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias, cast

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol

from agentls.core import surrogates
from agentls.core.json import JsonObject, JsonValue
from agentls.core.shown import shown
from agentls.lsp import errors, methods
from agentls.lsp.errors import InvalidParams, answer_for
from agentls.lsp.framing import Fault, framed

if TYPE_CHECKING:
    from agentls.lsp.server import AgentServer
    from agentls.lsp.transport import Writer

logger = logging.getLogger(__name__)

MessageId: TypeAlias = int | str
Handler: TypeAlias = Callable[[JsonValue], JsonValue | Coroutine[None, None, JsonValue]]


class Protocol(LanguageServerProtocol):
    """The protocol object of one connection."""

    _server: AgentServer

    def __init__(self, server: AgentServer, converter: Converter) -> None:
        super().__init__(server, converter)
        self.out: Writer | None = None
        self.requests: dict[str, Handler] = {types.INITIALIZE: self._initialize, types.SHUTDOWN: self._stop}
        self.notifications: dict[str, Callable[[JsonValue], None]] = {types.EXIT: self._exit}
        self._initialized = False
        # Apart from pygls' table of requests to the client, so that neither side can settle what is the other's.
        self._running: dict[MessageId, asyncio.Task[JsonValue]] = {}
        self._tasks: set[asyncio.Task[JsonValue]] = set()
        self._hooks: dict[MessageId, list[Callable[[bool], None]]] = {}
        # The methods that these replace have a cache on the class, which keeps the last 128 connections alive.
        self.get_message_type = lru_cache(_message_type)
        self.get_result_type = lru_cache(_result_type)

    def _register_builtin_features(self) -> None:
        """None of pygls' own, which serve documents and notebooks as well."""

    # In --------------------------------------------------------------------------------------------------------

    def receive(self, body: bytes) -> None:
        """Take one message. Whatever is wrong with it, a request is answered."""
        try:
            data = surrogates.parse(body)
        except ValueError as error:
            return self.refuse(None, errors.PARSE_ERROR, f"the message is no JSON: {error}")
        if not isinstance(data, Mapping):
            problem = "batches are not served; send each message by itself" if isinstance(data, list) else "no object"
            return self.refuse(None, errors.INVALID_REQUEST, f"the message is {shown(data)}: {problem}")
        return self._receive(data)

    def fault(self, fault: Fault) -> None:
        """Tell the client that its stream is wrong."""
        logger.warning("a client's stream is wrong: %s", fault.message)
        self.refuse(None, errors.PARSE_ERROR, fault.message)

    def refuse(self, msg_id: MessageId | None, code: int, message: str) -> None:
        """Answer with an error."""
        self._send({"jsonrpc": "2.0", "id": msg_id, "error": {"code": code, "message": message}})

    def _receive(self, data: JsonObject) -> None:
        msg_id, method = data.get("id"), data.get("method")
        known = msg_id if isinstance(msg_id, int | str) and not isinstance(msg_id, bool) else None
        problem: str | None = None
        if "method" not in data:
            if data.keys() & {"id", "result", "error"}:
                # JavaScript leaves out a result that is undefined; it is null.
                return self._take_response(known, {"result": None, **data})
            problem = "a message needs a method, or the id of the request that it answers"
        elif not isinstance(method, str):
            problem = f"the method is {shown(method)}, not a string"
        elif data.get("jsonrpc") != "2.0":
            problem = f'"jsonrpc" is {shown(data.get("jsonrpc"))}, not "2.0"'
        elif "id" in data and known is None:
            problem = f"the id is {shown(msg_id)}, not a whole number or a string"
        if problem is not None:
            return self.refuse(known, errors.INVALID_REQUEST, problem)
        name, params = cast(str, method), data.get("params")
        # Each message runs in a context of its own, which names the request at hand.
        context = contextvars.copy_context()
        if known is None:
            return context.run(self._handle_notification, name, params)
        return context.run(self._handle_request, known, name, params)

    def _take_response(self, msg_id: MessageId | None, data: JsonObject) -> None:
        if msg_id is None:
            # Such as the answer to a message of ours that the client could not read; answering it would make a loop.
            return logger.warning("a client answered a message without saying which")
        error, result = data.get("error"), data.get("result")
        result_type = self._result_types.pop(msg_id, None)
        if error is None and result_type is not None:
            try:
                result = self._converter.structure(dict(data), result_type).result
            except Exception as wrong:  # noqa: BLE001 - cattrs promises no narrower class
                error = {"code": errors.INTERNAL_ERROR, "message": f"the client's answer has another shape: {wrong}"}
        if error is None:
            return self._handle_response(msg_id, result)
        return self._handle_response(msg_id, None, _response_error(error))

    def structure_message(self, data: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Leave objects as they are: pygls' own takes every nested one with a `jsonrpc` key for an envelope."""
        return data

    # Requests and notifications --------------------------------------------------------------------------------

    def _handle_request(self, msg_id: MessageId, method_name: str, params: JsonValue) -> None:
        if method_name != types.INITIALIZE and not self._initialized:
            return self.refuse(msg_id, errors.NOT_INITIALIZED, f"{method_name} came before initialize")
        if method_name == types.INITIALIZE and self._initialized:
            return self.refuse(msg_id, errors.INVALID_REQUEST, "initialize came a second time")
        if self._shutdown:
            return self.refuse(msg_id, errors.INVALID_REQUEST, f"{method_name} came after shutdown")
        handler = self.requests.get(method_name)
        if handler is None:
            return self.refuse(msg_id, errors.METHOD_NOT_FOUND, self._unknown(method_name))
        self._ctx_msg_id.set(msg_id)
        try:
            result = handler(params)
        except Exception as error:  # noqa: BLE001 - the boundary of a request: whatever fails is answered
            return self._fail(msg_id, method_name, error)
        if not asyncio.iscoroutine(result):
            return self._send_response(msg_id, result)
        task: asyncio.Task[JsonValue] = asyncio.create_task(result, name=method_name)
        self._tasks.add(task)
        self._running[msg_id] = task
        return task.add_done_callback(partial(self._finish, msg_id, method_name))

    def _unknown(self, method: str) -> str:
        if method in methods.REQUESTS:
            return f'{method} needs capabilities.experimental.agent {{"version": 1}} in initialize'
        return f"there is no method {shown(method)}"

    def _handle_notification(self, method_name: str, params: JsonValue) -> None:
        if method_name == types.CANCEL_REQUEST:
            return self._handle_cancel_notification(params.get("id") if isinstance(params, Mapping) else None)
        if method_name != types.EXIT and (not self._initialized or self._shutdown):
            return None
        handler = self.notifications.get(method_name)
        if handler is None:
            return logger.debug("a client sent the notification %s, which is not served", method_name)
        try:
            handler(params)
        except InvalidParams as error:
            # Only where: what stands there may be the text of a document.
            logger.warning("a client's %s is left out: its %s is wrong", method_name, error.path)
        except Exception:  # the boundary of a notification
            logger.exception("%s failed", method_name)
        return None

    def _handle_cancel_notification(self, msg_id: object) -> None:
        task = self._running.get(msg_id) if isinstance(msg_id, int | str) else None
        if task is not None:
            task.cancel()

    def _finish(self, msg_id: MessageId, method: str, task: asyncio.Task[JsonValue]) -> None:
        """Answer a request whose handler is done."""
        self._tasks.discard(task)
        if self._running.get(msg_id) is task:
            del self._running[msg_id]
        if task.cancelled():
            return self._fail(msg_id, method, JsonRpcException(f"{method} was cancelled", errors.REQUEST_CANCELLED))
        failure = task.exception()
        return self._send_response(msg_id, task.result()) if failure is None else self._fail(msg_id, method, failure)

    def _fail(self, msg_id: MessageId, method: str, failure: BaseException) -> None:
        answer, bug = answer_for(failure, method)
        if bug:
            logger.error("%s failed", method, exc_info=failure)
        self._send_response(msg_id, None, answer.to_response_error())

    def _handle_response(
        self, msg_id: MessageId, result: object = None, error: types.ResponseError | None = None
    ) -> None:
        future = self._request_futures.pop(msg_id, None)
        if future is None:
            return logger.debug("a client answered what it was not asked")
        if future.done():
            # It was given up meanwhile; pygls would raise InvalidStateError here.
            return None
        if error is not None:
            return future.set_exception(JsonRpcException.from_error(error))
        return future.set_result(result)

    async def cancel_requests(self) -> None:
        """Cancel what the client waits for and what it was asked; returns when every request has its answer."""
        for future in tuple(self._request_futures.values()):
            future.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
            # The answers are given by callbacks of the tasks, which run in the next loop step.
            await asyncio.sleep(0)

    # Out -------------------------------------------------------------------------------------------------------

    def after_answer(self, hook: Callable[[bool], None]) -> None:
        """Call `hook` once the bytes of the answer to the request at hand are queued: true for a result."""
        msg_id = self._ctx_msg_id.get()
        if msg_id is None:
            raise AssertionError("no request is at hand")
        self._hooks.setdefault(msg_id, []).append(hook)

    def _send_response(
        self, msg_id: MessageId, result: object = None, error: types.ResponseError | None = None
    ) -> None:
        given = error is None
        if error is not None:
            answer: dict[str, object] = {"code": error.code, "message": error.message}
            if error.data is not None:
                answer["data"] = error.data
            self._send({"jsonrpc": "2.0", "id": msg_id, "error": answer})
        elif not self._send({"jsonrpc": "2.0", "id": msg_id, "result": result}):
            given = False
            self.refuse(msg_id, errors.INTERNAL_ERROR, "the answer could not be written; the server's log says why")
        for hook in self._hooks.pop(msg_id, ()):
            hook(given)

    def _send_data(self, data: object) -> None:
        """What pygls sends of its own: requests and notifications to the client."""
        self._send(data)

    def _send(self, message: object) -> bool:
        """Queue a message; false when it has no JSON form. Bodies are never logged."""
        try:
            body = surrogates.dump(message, self._plain)
        except TypeError:
            logger.exception("a message could not be written")
            return False
        if self.out is not None:
            self.out.write(framed(body))
        return True

    def _plain(self, value: object) -> object:
        if hasattr(value, "__attrs_attrs__"):
            return self._converter.unstructure(value)
        if isinstance(value, enum.Enum):
            return value.value
        raise TypeError(f"a {type(value).__name__} has no JSON form")

    # Lifecycle -------------------------------------------------------------------------------------------------

    @property
    def status(self) -> int:
        """What a process ends with that has lost this client: 0 after a shutdown, else 1."""
        return 0 if self._shutdown else 1

    def _initialize(self, params: JsonValue) -> JsonValue:
        # A malformed one may be tried again.
        result = self._server.initialize(methods.INITIALIZE.decode(params))
        self._initialized = True
        return result

    def _stop(self, _: JsonValue) -> JsonValue:
        # No more requests are taken; those under way are still answered.
        self._shutdown = True
        return None

    def _exit(self, _: JsonValue) -> None:
        # pygls ends the process here; ours may serve others.
        self._server.leave(self.status)


def _message_type(method: str) -> type[object] | None:
    return types.METHOD_TO_TYPES.get(method, (None,))[0]


def _result_type(method: str) -> type[object] | None:
    return types.METHOD_TO_TYPES.get(method, (None, None))[1]


def _response_error(raw: JsonValue) -> types.ResponseError:
    fields = raw if isinstance(raw, Mapping) else {}
    code, message = fields.get("code"), fields.get("message")
    return types.ResponseError(
        code=code if isinstance(code, int) else errors.INTERNAL_ERROR,
        message=message if isinstance(message, str) else "the client gave an error without a message",
    )
