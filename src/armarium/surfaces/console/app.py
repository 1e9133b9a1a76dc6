"""The console as a part of the server: its page, its log-in, and the tools of its sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from armarium.foundation.routes import Route, bind_routes
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import Authenticator
from armarium.foundation.settings.model import ConsoleSettings
from armarium.foundation.tools import ToolSpec, bind_tools
from armarium.surfaces.caller import CONSOLE
from armarium.surfaces.console.links import KeyLinks, OwnerLinks
from armarium.surfaces.console.log_in import OPERATION, PATH, FailedAttempts, LogIn
from armarium.surfaces.console.page import ConsolePage
from armarium.surfaces.console.sessions import ConsoleSessions
from armarium.surfaces.console.threads import tools as thread_tools
from armarium.surfaces.console.threads.store import ThreadStore
from armarium.surfaces.console.threads.tools import QuestionTool, Threads
from armarium.surfaces.console.tools import ROUTES, TOOLS, Offer, SessionTools
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.web.endpoint import ApiEndpoint


class Console:
    name = CONSOLE

    def __init__(
        self,
        settings: ConsoleSettings,
        state_dir: Path,
        offers: Sequence[Offer],
        question_tools: Iterable[QuestionTool] = (),
        administered: Sequence[Access] = (),
    ) -> None:
        """`offers` are those of the open capabilities, and `administered` says who administers what. `question_tools`
        answer the questions in threads."""
        self.sessions = ConsoleSessions(settings)
        """The browsers that are logged in."""
        self._key_links, self._owner_links = KeyLinks(), OwnerLinks(state_dir)
        sessions = SessionTools(self.sessions, self._key_links, offers, administered)
        # First those that ask several sources.
        preferred = sorted(question_tools, key=lambda each: not each.takes({"sources": []}))
        threads = Threads(ThreadStore(state_dir / "threads"), preferred)
        self.tools: Sequence[ToolSpec] = [*bind_tools(TOOLS, sessions), *bind_tools(thread_tools.TOOLS, threads)]
        """Those that its routes offer, and the log-in."""
        self.routes: Sequence[Route] = bind_routes((*ROUTES, *thread_tools.ROUTES), self.tools)
        """Its part of the JSON API."""
        self.operations: Mapping[str, Json] = {PATH: {"post": OPERATION}}
        """Its operations in the OpenAPI document besides its routes, by path."""

    def endpoints(self, gate: Gate, dispatcher: Dispatcher, authenticator: Authenticator) -> list[BaseRoute]:
        """The page and the log-in. They come before the JSON API, which answers to all other paths of its own."""
        log_in = LogIn(
            gate, dispatcher, authenticator, self.sessions, self._key_links, self._owner_links, FailedAttempts()
        )
        return [
            HttpRoute(PATH, ApiEndpoint(gate, log_in.serve), methods=["POST"]),
            *ConsolePage(gate).routes,
        ]
