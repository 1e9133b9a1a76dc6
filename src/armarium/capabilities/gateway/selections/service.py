"""Decides which selection applies to a call, and which server excludes others in its session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.arguments import MessageSelection, Selection
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import ExclusiveServer
from armarium.capabilities.gateway.selections.store import DEFAULT, SelectionStore
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.tools import Call

Origin = Literal["message", "session", "default", "none"]
_META_KEY = "rag"


@dataclass(frozen=True, slots=True)
class Choice:
    """What applies to a call."""

    call: Call
    """The call, in the session that the message names, if it names one."""
    selection: Selection
    origin: Origin
    """Where the selection is from."""
    top_k: int | None
    exclusive: str | None
    """The only server whose tools may run; None if all may."""


class Selections:
    """The selections of all callers. `specs` are all current servers."""

    def __init__(self, store: SelectionStore, specs: Callable[[], Iterable[ServerSpec]]) -> None:
        self.store = store
        self._specs = specs

    async def of_call(self, call: Call, argument: MessageSelection | None = None) -> Choice:
        """The selection of the message, or else of the session, or else the caller's default. In a message, `_meta`
        precedes the argument: applications set it, models cannot."""
        in_meta = _selection_in_meta(call.meta)
        message = [each for each in (in_meta, argument) if each is not None]
        session = next((each.session for each in message if each.session), call.session)
        stored = await self._stored(call, session)
        levels: list[tuple[Origin, Selection]] = []
        for each in message:
            levels.append(("message", each))
        if session is not None and session in stored:
            levels.append(("session", stored[session]))
        if DEFAULT in stored:
            levels.append(("default", stored[DEFAULT]))
        nothing: tuple[Origin, Selection] = ("none", Selection())
        origin, selection = next((each for each in levels if each[1].chooses), nothing)
        top_k = next((each.top_k for _, each in levels if each.top_k is not None), None)
        in_force: list[Selection] = [*message]
        if in_meta is None or not in_meta.chooses:
            # A model may name another session, or another selection. What is selected in its own stays in force.
            in_force += self._of_sessions(stored, session, call.session)
        named = {name for each in in_force for name in each.named_servers}
        exclusive = self._exclusive(call, named)
        return Choice(replace(call, session=session), selection, origin, top_k, exclusive)

    async def require_permitted(self, call: Call, server: str) -> None:
        """Raise `ExclusiveServer` if another server, selected in the session, excludes this one."""
        if any(spec.is_exclusive for spec in self._specs()):
            require_not_excluded(server, (await self.of_call(call)).exclusive)

    async def _stored(self, call: Call, session: str | None) -> Mapping[str, Selection]:
        sessions = {DEFAULT, *(each for each in (session, call.session) if each)}
        return await self.store.read(call.principal.username, sessions)

    def _of_sessions(self, stored: Mapping[str, Selection], *sessions: str | None) -> list[Selection]:
        """The selections of these sessions; the default for one without its own."""
        found = [stored.get(session or DEFAULT) or stored.get(DEFAULT) for session in sessions]
        return [each for each in found if each is not None]

    def _exclusive(self, call: Call, named: Iterable[str]) -> str | None:
        names = set(named)
        found = [
            spec
            for spec in self._specs()
            if spec.is_exclusive and spec.name in names and may_see_server(call.principal, spec)
        ]
        first = min(found, key=lambda spec: (spec.ui.order, spec.name), default=None)
        return first.name if first is not None else None


def require_not_excluded(server: str, exclusive: str | None) -> None:
    """Raise `ExclusiveServer` unless the tools of a server may run."""
    if exclusive is not None and exclusive != server:
        raise exclusion(exclusive)


def exclusion(exclusive: str) -> ExclusiveServer:
    """The error of a server that may not run together with an exclusive one."""
    return ExclusiveServer(
        f"{exclusive} is selected, and no other server may be used together with it",
        hint=f"use only {exclusive}, or remove it from the selection",
    )


def _selection_in_meta(meta: Mapping[str, Any]) -> MessageSelection | None:
    if (given := meta.get(_META_KEY)) is None:
        return None
    try:
        if not isinstance(given, Mapping):
            raise TypeError
        known = {field.alias or name for name, field in MessageSelection.model_fields.items()}
        named = {key: value for key, value in dict(cast(Mapping[str, Any], given)).items() if key in known}
        selection = MessageSelection.model_validate(named)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            "`_meta.rag` is not a selection",
            hint='such as {"selectedServers": ["docs"], "selectedResourceIds": ["handbook"], "top_k": 8}',
            field="_meta.rag",
        ) from error
    return selection
