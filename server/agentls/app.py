"""The composition root: the only file that names concrete dialects, models and stores."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping

import agentls
from agentls.agent.host import AgentHost
from agentls.agent.prompt import IDENTITY, assemble
from agentls.models import catalog
from agentls.models.catalog import Catalog, ModelRow, Opener
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import HttpModels, Network
from agentls.models.local import LocalModels
from agentls.models.scripted import ScriptedModels
from agentls.models.weights import weights_dir
from agentls.settings import Settings
from agentls.store.sqlite import SqliteStore


def build_host(settings: Settings, environment: Mapping[str, str] = os.environ) -> AgentHost:
    """A host over the user's store and all models; UserError where the settings name what is not there."""
    models = build_models(settings, environment)
    models.default()  # a wrong choice is told now, not at the first agent
    return AgentHost(
        SqliteStore(settings.state_dir),
        models,
        instance=_new_id(),
        prompt=assemble([IDENTITY]),
        now=_epoch_ms,
        new_id=_new_id,
    )


def build_models(settings: Settings, environment: Mapping[str, str]) -> Catalog:
    """The catalog: what the settings name, then the local model, then the demo."""
    network = Network(user_agent=f"agentls/{agentls.__version__}")
    dialect = OpenAiChat()
    log = settings.state_dir / "local-model.log"
    openers: dict[str, Opener] = {
        "openai-chat": HttpModels(dialect, network, environment),
        "local": LocalModels(dialect, network, weights_dir(environment), log=log),
        "scripted": ScriptedModels(),
    }
    named = _named(settings)
    # Whoever names an endpoint is to hear what it lacks, and not to be answered by another model instead.
    choice = settings.model or (named[0].name if named else None)
    return Catalog([*named, catalog.LOCAL, catalog.DEMO], openers, choice)


def _named(settings: Settings) -> list[ModelRow]:
    rows = []
    if settings.endpoint is not None:
        served = settings.endpoint
        rows.append(catalog.endpoint(served.base_url, served.model_id, key_variable=served.key_variable))
    if settings.script is not None:
        rows.append(ModelRow("script", settings.script.stem, "scripted", base_url=str(settings.script)))
    return rows


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> str:
    return uuid.uuid4().hex
