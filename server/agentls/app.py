"""The composition root: the only file that names concrete dialects, models, tools, producers, hooks and stores."""

from __future__ import annotations

import logging
import os
import random
import time
import uuid
from collections.abc import Mapping
from datetime import datetime

import tzlocal

import agentls
from agentls.agent.abilities import Abilities
from agentls.agent.contexts import ProducedContexts
from agentls.agent.go_on import GoOn
from agentls.agent.hooks import Hooks
from agentls.agent.host import AgentHost
from agentls.agent.loop import Parts
from agentls.agent.modes import ReadOnlyMode
from agentls.agent.prompt import IDENTITY, TOOL_USE, assemble
from agentls.agent.repeats import RepeatedCalls
from agentls.agent.retries import Retries
from agentls.agent.time_limit import TimeLimit
from agentls.agent.titles import FirstTitle
from agentls.context.editor import EditorView
from agentls.context.files import Files
from agentls.context.runtime import Runtime
from agentls.context.snapshots import Snapshots
from agentls.context.time import Time
from agentls.models import catalog
from agentls.models.catalog import Catalog, ModelRow, Opener
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import HttpModels, Network
from agentls.models.local import LocalModels
from agentls.models.model import Models
from agentls.models.retry import RetryPolicy
from agentls.models.scripted import ScriptedModels
from agentls.models.weights import weights_dir
from agentls.settings import Settings
from agentls.store.sqlite import SqliteStore
from agentls.tools.list_files import ListFiles
from agentls.tools.read import Read
from agentls.tools.registry import Registry
from agentls.tools.write import Write
from agentls.workspace.documents import Documents
from agentls.workspace.watch import Watches

logger = logging.getLogger(__name__)


def build_host(settings: Settings, environment: Mapping[str, str] = os.environ) -> AgentHost:
    """A host over the user's store and all models; UserError where the settings name what is not there."""
    models = build_models(settings, environment)
    models.default()  # a wrong choice is told now, not at the first agent
    registry = build_registry()
    store = SqliteStore(settings.state_dir)
    for told in store.told:
        logger.error("%s", told)
    documents, watches = Documents(), Watches()
    prompt = assemble([IDENTITY, TOOL_USE], registry.schemas())
    return AgentHost(
        store,
        Parts(models, prompt, registry, build_hooks(settings, models, registry, documents, watches)),
        documents,
        instance=_new_id(),
        now=_epoch_ms,
        new_id=_new_id,
        warnings=store.told,
        watches_logs=settings.watches_logs,
        told_changed=watches.told,
        ended=(watches.close,),
    )


def build_registry() -> Registry:
    """The tools that every agent has."""
    registry = Registry()
    registry.register(Read())
    registry.register(ListFiles())
    registry.register(Write())
    return registry


def build_hooks(
    settings: Settings, models: Models, registry: Registry, documents: Documents, watches: Watches
) -> Hooks:
    """Who has a say at each point of the loop, in their order."""
    snapshots = Snapshots([Runtime(), Time(), EditorView(documents), Files(watches)])
    contexts = ProducedContexts(snapshots, documents, _local_time)
    policy = RetryPolicy() if settings.max_retries is None else RetryPolicy(max_retries=settings.max_retries)
    mode, repeats = ReadOnlyMode(registry.read_only()), RepeatedCalls()
    return Hooks(
        pre_step=(contexts, GoOn()),
        request=(Abilities(models), mode),
        request_error=(Retries(policy, random.random),),
        pre_execute=(mode, repeats),
        guard=(mode,),
        execute=(TimeLimit(),),
        post_execute=(repeats,),
        turn_stopping=(FirstTitle(),),
        closed=(contexts.forget,),
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


def _local_time() -> datetime:
    return datetime.fromtimestamp(time.time(), tzlocal.get_localzone())


def _new_id() -> str:
    return uuid.uuid4().hex
