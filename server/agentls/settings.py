"""Settings, resolved once when the process starts: what the command line and the environment say.

What a component alone is tuned by stands beside it, such as `Timeouts` in `models/http.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from agentls.core.errors import UserError

STATE_VARIABLE = "AGENTLS_STATE_DIR"
MODEL_VARIABLE = "AGENTLS_MODEL"
BASE_URL_VARIABLE = "AGENTLS_BASE_URL"
MODEL_ID_VARIABLE = "AGENTLS_MODEL_ID"
KEY_VARIABLE_VARIABLE = "AGENTLS_KEY_VARIABLE"
MAX_RETRIES_VARIABLE = "AGENTLS_MAX_RETRIES"
INVARIANTS_VARIABLE = "AGENTLS_INVARIANTS"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server: its base URL, the id of a model there, and the name of the environment variable
    that holds its key (None: it needs none)."""

    base_url: str
    model_id: str
    key_variable: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server process is told. `model` names the model of new agents (None: the best that is there); `script`
    is a script of the scripted model; `max_retries` is how often a failed request is tried again in its step (None: as
    the policy of `models/retry.py` has it); `watches_logs` has the rules of every log checked while it is written."""

    state_dir: Path
    model: str | None = None
    endpoint: Endpoint | None = None
    script: Path | None = None
    max_retries: int | None = None
    watches_logs: bool = False


def resolve(
    environment: Mapping[str, str],
    *,
    state_dir: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    model_id: str | None = None,
    key_variable: str | None = None,
    script: str | None = None,
    max_retries: str | None = None,
) -> Settings:
    """Settings from options, else from the environment, else the defaults; UserError where they do not fit together.

    An endpoint that is configured is also the default model, unless `model` names another.
    """
    url = base_url or environment.get(BASE_URL_VARIABLE)
    served = model_id or environment.get(MODEL_ID_VARIABLE)
    if url and not served:
        raise UserError(f'the endpoint "{url}" has no model; name one with --model-id or {MODEL_ID_VARIABLE}')
    if served and not url:
        raise UserError(f'the model "{served}" has no endpoint; name one with --base-url or {BASE_URL_VARIABLE}')
    if script is not None and not Path(script).is_file():
        raise UserError(f'the script "{script}" is no file; give the path of a script of the scripted model')
    retries = max_retries or environment.get(MAX_RETRIES_VARIABLE) or None
    if retries is not None and not (retries.isascii() and retries.isdigit() and len(retries) <= 6):
        raise UserError(f'"{retries}" is no number of retries; give a whole number from 0 to 999999')
    return Settings(
        state_dir=state_folder(environment, state_dir),
        model=model or environment.get(MODEL_VARIABLE) or None,
        endpoint=Endpoint(url, served, key_variable or environment.get(KEY_VARIABLE_VARIABLE) or None)
        if url and served
        else None,
        script=Path(script).absolute() if script is not None else None,
        max_retries=int(retries) if retries is not None else None,
        watches_logs=environment.get(INVARIANTS_VARIABLE) == "1",
    )


def state_folder(environment: Mapping[str, str], named: str | None) -> Path:
    """Where sessions are kept: as named, else by the environment, else in the person's state directory."""
    directory = named or environment.get(STATE_VARIABLE)
    return Path(directory).absolute() if directory else platformdirs.user_state_path("agentls", appauthor=False)
