"""Errors by who can act on them.

    Exception
    ├── UserError             the person can mend it; its text is shown as it is
    │   ├── UnknownSession    no session of that id is stored
    │   ├── StoreUnavailable  the disk refuses; nothing unsaved was acknowledged
    │   ├── SessionHeld       another process has the session open; carries its pid
    │   ├── SessionDamaged    the log cannot be read as ours
    │   └── UnsupportedFormat a newer agentls wrote it
    ├── DecodeError           a record does not fit its type; names the path
    └── LogicError            a rule of the log would be broken: a bug of ours, the log is unchanged

A model's failure is no exception: it is a `Failure` value (reasons.py) that the loop decides on. A text says what
failed, the value in quotes and what to do, in lower case and without a full stop.
"""

from __future__ import annotations


class UserError(Exception):
    """Something that the person can mend; the text is written for them."""


class UnknownSession(UserError):
    """No session of that id is stored."""

    def __init__(self, session: str) -> None:
        super().__init__(f'there is no session "{session}"; list the sessions to see which there are')


class StoreUnavailable(UserError):
    """The session store cannot write (full, read-only, gone)."""


class SessionHeld(UserError):
    """Another process holds the session's lock."""

    def __init__(self, session: str, pid: int | None) -> None:
        self.pid = pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f'session "{session}" is open in {holder}; close it there or attach to that server')


class SessionDamaged(UserError):
    """The stored log breaks a rule that every log of ours keeps."""


class UnsupportedFormat(UserError):
    """The stored log needs a newer agentls."""


class DecodeError(Exception):
    """A record does not fit its type; `path` says where, as in `content[0].text`."""

    def __init__(self, message: str, path: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


class LogicError(Exception):
    """An event would break a rule of the log; nothing was appended."""
