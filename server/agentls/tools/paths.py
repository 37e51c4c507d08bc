"""A path as a model names it: where it really is, how it is named to the model, and what stands in the way."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentls.core.surrogates import mend
from agentls.core.visible import visible
from agentls.tools.tool import ToolContext, ToolError
from agentls.workspace.disk import NotRegular
from agentls.workspace.roots import OutsideRoots, Roots
from agentls.workspace.uris import NotAFileUri, is_uri, to_path


def locate(context: ToolContext, text: str) -> Path:
    """The real path inside the workspace of a path or `file:` URI, relative ones from its first folder."""
    if not text or "\0" in text:
        raise ToolError("INVALID_ARGS", '"path" must name a file or folder, such as "src/main.py"')
    try:
        path = to_path(text) if is_uri(text) else Path(text)
    except NotAFileUri as error:
        raise ToolError("INVALID_ARGS", str(error)) from error
    with failures(text):
        try:
            return context.roots.resolve(path)
        except OutsideRoots as error:
            folders = ", ".join(f'"{folder}"' for folder in context.roots.folders)
            where = "" if str(error.path) == text else f', it leads to "{error.path}"'
            raise ToolError(
                "OUTSIDE_WORKSPACE",
                f'"{text}" is outside of the workspace{where}; use a path in {folders} or ask the person to add it',
            ) from error


def shown(roots: Roots, path: Path) -> str:
    """A real path on one line, as `locate` takes it again unless it has characters that cannot be shown."""
    return visible(mend(roots.name(path))).replace("\n", "⟨U+000A⟩")


@contextmanager
def failures(name: str) -> Iterator[None]:
    """Turn what the system says about a file into a ToolError that names it as the model did."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError("NOT_FOUND", f'there is no "{name}"; list_files shows what is there') from error
    except IsADirectoryError as error:
        raise ToolError("IS_DIRECTORY", f'"{name}" is a folder; list_files shows what is in it') from error
    except NotADirectoryError as error:
        raise ToolError("NOT_A_DIRECTORY", f'"{name}" is not there: what should be a folder is a file') from error
    except PermissionError as error:
        raise ToolError("PERMISSION", f'we have no permission for "{name}"; ask the person') from error
    except NotRegular as error:
        raise ToolError("IO", f'"{name}" is a pipe, a socket or a device, not a file') from error
    except OSError as error:
        reason = "its links go round in a circle" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise ToolError("IO", f'"{name}" cannot be used: {reason}') from error
