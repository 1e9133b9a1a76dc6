"""The console as a part of the server: its page, its log-in, and the tools of its sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from armarium.foundation.routes import Route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import Authenticator
from armarium.foundation.settings.model import ConsoleSettings
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.console.links import KeyLinks, OwnerLinks
from armarium.surfaces.console.log_in import OPERATION, PATH, FailedAttempts, LogIn
from armarium.surfaces.console.page import ConsolePage
from armarium.surfaces.console.sessions import CONSOLE, ConsoleSessions
from armarium.surfaces.console.threads.store import ThreadStore
from armarium.surfaces.console.threads.tools import QuestionTool, Threads, thread_routes, thread_tools
from armarium.surfaces.console.tools import Offer, SessionTools, session_routes, session_tools
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import BrowserCaller, Gate
from armarium.surfaces.web.endpoint import ApiEndpoint


class Console:
    """The console of one server."""

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
        self._sessions = ConsoleSessions(settings)
        self._key_links, self._owner_links = KeyLinks(), OwnerLinks(state_dir)
        by_name = session_tools(SessionTools(self._sessions, self._key_links, offers, administered))
        # First those that ask several sources.
        preferred = sorted(question_tools, key=lambda each: not each.takes({"sources": []}))
        threads = thread_tools(Threads(ThreadStore(state_dir / "threads"), preferred))
        self.tools: Sequence[ToolSpec] = [*by_name.values(), *threads]
        """Those that its routes offer, and the log-in."""
        self.routes: Sequence[Route] = [*session_routes(by_name), *thread_routes(threads)]
        """Its part of the JSON API."""
        self.operations: Mapping[str, Json] = {PATH: {"post": OPERATION}}
        """Its operations in the OpenAPI document besides its routes, by path."""
        self.browser_caller: BrowserCaller = self._sessions.caller_of
        self.element_caller: BrowserCaller = self._sessions.caller_of_element

    def endpoints(self, gate: Gate, dispatcher: Dispatcher, authenticator: Authenticator) -> list[BaseRoute]:
        """The page and the log-in. They come before the JSON API, which answers to all other paths of its own."""
        log_in = LogIn(
            gate, dispatcher, authenticator, self._sessions, self._key_links, self._owner_links, FailedAttempts()
        )
        return [
            HttpRoute(PATH, ApiEndpoint(gate, log_in.serve), methods=["POST"]),
            *ConsolePage(gate).routes,
        ]
