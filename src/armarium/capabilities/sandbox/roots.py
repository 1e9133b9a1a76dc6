"""Named roots: their directories, allow-lists and ignore lists."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence

from armarium.capabilities.sandbox import errors
from armarium.capabilities.sandbox.deny_list import DENY_WRITE
from armarium.foundation.errors import ArmariumError, ConfigError
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.credential_files import CREDENTIAL_FILES
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.ignore import IgnoreRules
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.path_rules import PathRules
from armarium.foundation.refs import FileRef
from armarium.foundation.security.access import OPEN, READ, WRITE, AccessRule, not_in_group
from armarium.foundation.security.identity import LOCAL, Principal

_log = logging.getLogger(__name__)

WRITING_TOOLS = ("write_file", "remove_file", "patch_file", "create_folder", "remove_folder", "copy", "move")
TOOL_NAMES = (
    "list_folder", "read_file", "write_file", "remove_file", "patch_file", "create_folder", "remove_folder",
    "stat_file", "hash_file", "permissions_file", "copy", "move", "grep", "glob",
)  # fmt: skip
"""What an allow-list may name. `list_roots` is always allowed, and `read_files` is allowed with `read_file`."""

# Copying out of a read-only root does not change it.
_CHANGES_ITS_ROOT = frozenset(WRITING_TOOLS) - {"copy"}


class RootReplaced(Exception):
    """Another directory is at the path of a root. Nothing was changed yet; the root must be opened again."""

    def __init__(self, root: Root) -> None:
        super().__init__(root.name)
        self.root = root


class Root:
    """A directory that callers know by name, with what they may do in it."""

    def __init__(
        self,
        name: str,
        path: str,
        *,
        allowed_tools: Sequence[str],
        read_only: bool = False,
        ignore: Iterable[str] = (),
        private: Sequence[str] = (),
        deny_write: Sequence[str] = (),
        credentials: Sequence[str] = (),
        confined: ConfinedRoot | None = None,
        rule: AccessRule = OPEN,
    ) -> None:
        self.name = name
        self.read_only = read_only
        self.rule = rule
        """Who may use it, and each of its tools."""
        self.allowed_tools = tuple(tool for tool in TOOL_NAMES if "*" in allowed_tools or tool in allowed_tools)
        patterns = tuple(ignore)
        try:
            self.ignore = IgnoreRules.from_lines(patterns) if patterns else None
            self.private = PathRules(private) if private else None
            """The server's own files, which `ignore` hides from listings and this in every spelling."""
            self.denied = PathRules(deny_write, DENY_WRITE) if deny_write and not read_only else None
            """What callers may not write."""
            self.credentials = PathRules(credentials, CREDENTIAL_FILES) if credentials else None
            """What callers may list, but not read or write."""
        except InvalidPattern as error:
            raise ConfigError(f"root {name!r}: {error.message}", hint=error.hint) from error
        try:
            self.confined = confined or ConfinedRoot(os.path.expanduser(path))
        except OSError as error:
            raise ConfigError(
                f"root {name!r}: cannot open {path}: {error.strerror}", hint="every root must be an existing directory"
            ) from error
        # Links on the path are followed once, at the start. Where roots are nested, an agent could create others later.
        self._path = self.confined.real_path
        self._refused: tuple[int, int] | None = None
        """Identity of a directory that replaced this one and cannot be opened."""
        self._missing = False

    def require_current(self) -> None:
        """Raise unless the open directory is still the one at the root's path."""
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise self._unavailable(error) from error
        identity = (status.st_dev, status.st_ino)
        if identity == self._refused:
            raise self._not_granted()
        if identity != self.confined.identity:
            raise RootReplaced(self)
        if self._missing:
            self._missing = False
            _log.warning("the directory of a root is available again", extra={"root": self.name})

    def _unavailable(self, error: OSError) -> errors.RootUnavailable:
        reason = errors.os_error_reason(error)
        if not self._missing:
            self._missing = True
            _log.warning("the directory of a root is missing", extra={"root": self.name, "reason": reason})
        return errors.RootUnavailable(
            f"the directory of root {self.name} is missing ({reason})", hint="it is served again as soon as it exists"
        )

    def _not_granted(self) -> errors.RootUnavailable:
        return errors.RootUnavailable(
            f"the directory of root {self.name} was replaced, and this process may not open the new one",
            hint="restart the server",
        )

    def reopen(self) -> bool:
        """Open the directory that is now at the root's path; False if it is already open. Blocks."""
        try:
            fresh = self.confined.reopened()
        except OSError as error:
            raise self._unavailable(error) from error
        if fresh.identity == self.confined.identity:
            return False
        # Calls in progress keep the old directory open.
        self.confined = fresh
        self._missing, self._refused = False, None
        return True

    def confirm_replaced(self) -> None:
        """Log that another directory is served from now on. Raise if this thread may not read it."""
        try:
            os.close(self.confined.open_directory(""))
        except PermissionError:
            self._refused = self.confined.identity
            _log.warning(
                "the directory of a root was replaced by one that may not be opened", extra={"root": self.name}
            )
            raise self._not_granted() from None
        _log.warning("the directory of a root was replaced; the new one is served", extra={"root": self.name})

    def admits(self, principal: Principal, tool: str, *, writing: bool) -> bool:
        """Whether the groups permit the caller this tool, to change the root or to read it."""
        return self.rule.admits(principal, WRITE if writing else READ, tool)

    def is_visible_to(self, principal: Principal) -> bool:
        """Whether the groups permit the caller any tool that the root allows."""
        if not self.rule.narrower or not self.allowed_tools:
            return self.rule.admits(principal)
        return any(self._may_use(principal, tool) for tool in self.allowed_tools)

    def effective_tools(self, principal: Principal) -> list[str]:
        """The allowed tools, without those that a read-only root, or a group, denies the caller."""
        return [
            tool
            for tool in self.allowed_tools
            if not (self.read_only and tool in _CHANGES_ITS_ROOT) and self._may_use(principal, tool)
        ]

    def _may_use(self, principal: Principal, tool: str) -> bool:
        return self.admits(principal, tool, writing=tool in _CHANGES_ITS_ROOT)

    def hides(self, path: str, is_directory: bool) -> bool:
        """Whether the path, or any directory above it, is hidden."""
        return (self.ignore is not None and self.ignore.hides(path, is_directory)) or (
            self.private is not None and self.private.match(path, is_directory)
        )

    def may_hide_below(self, path: str) -> bool:
        """Whether a file of the server could be below the directory."""
        return self.private is not None and self.private.can_match_below(path)

    def require_visible(self, path: str, *, is_directory: bool = False) -> None:
        """Raise if the ignore list hides the path. Check both the path as given and the resolved one."""
        if path and self.hides(path, is_directory):
            # The message must not reveal the path that a link leads to.
            raise errors.PathIgnored("path is hidden by the ignore list", private={"resolved": escape_name(path)})

    @property
    def restricts_reading(self) -> bool:
        return self.ignore is not None or self.credentials is not None

    @property
    def restricts_writing(self) -> bool:
        return self.restricts_reading or self.denied is not None

    def require_readable(self, path: str, *, is_directory: bool = False) -> None:
        """Raise if the content of the path is hidden. Check both the path as given and the resolved one."""
        self.require_visible(path, is_directory=is_directory)
        if self.credentials is not None and path and self.credentials.match(path, is_directory):
            raise errors.CredentialsHidden(
                "the name is that of a file with credentials, whose content is hidden",
                hint="the operator can change `hide_credentials`",
                private={"resolved": escape_name(path)},
            )

    def require_writable(self, path: str, *, is_directory: bool | None = False) -> None:
        """Raise if callers may not write the path. Check both the path as given and the resolved one. `is_directory` is
        None for a link."""
        self.require_visible(path, is_directory=bool(is_directory))
        if self.denied is not None and path and self.denied.match(path, is_directory):
            raise self.write_denied(path)
        self.require_readable(path, is_directory=bool(is_directory))

    def write_denied(self, path: str, holder: str = "") -> errors.WriteDenied:
        """The error for a denied path; `holder` is the directory that a call would change."""
        shown = escape_name(path)
        return errors.WriteDenied(
            f"{escape_name(holder)} holds {shown}, which agents may not write"
            if holder
            else f"agents may not write {shown}",
            hint="ask a person to do it; the operator can change `deny_write` of the root",
            denied=shown,
        )

    def resolved(self, path: str) -> str:
        """The path with links resolved, as far as it exists."""
        existing, missing = path, list[str]()
        while existing:
            try:
                with self.confined.opened(existing, os.O_PATH) as fd:
                    return "/".join(filter(None, [self.confined.locate(fd, last_known=True), *reversed(missing)]))
            except FileNotFoundError:
                existing, _, name = existing.rpartition("/")
                missing.append(name)
        return path

    def ref(self, path: str) -> FileRef:
        """The reference that other capabilities use for the path."""
        return FileRef("root", self.name, path)


class Roots:
    """The roots as one caller sees them. To a caller who may not use a root, it does not exist."""

    def __init__(self, roots: Iterable[Root]) -> None:
        self._by_name = {root.name: root for root in roots}
        self._principal = LOCAL

    def for_caller(self, principal: Principal) -> Roots:
        """The roots as this caller sees them."""
        view = object.__new__(Roots)
        view._by_name, view._principal = self._by_name, principal
        return view

    def require_known(self, name: str) -> Root:
        root = self._by_name.get(name)
        if root is None or not root.is_visible_to(self._principal):
            known = ", ".join(each.name for each in self)
            raise errors.UnknownRoot(
                f"unknown root: {name[:100]}", hint=f"known roots: {known}; call list_roots for more"
            )
        return root

    def __iter__(self) -> Iterator[Root]:
        return (root for root in self._by_name.values() if root.is_visible_to(self._principal))

    def enter(self, name: str, tool: str, path: str, *, writing: bool = False) -> Root:
        """The root of that name. Raise unless its allow-list, `read_only` and its groups permit the tool."""
        root = self.require_known(name)
        error: ArmariumError
        if tool not in root.allowed_tools:
            error = errors.ToolNotAllowed(f"tool {tool} not allowed on root {name}")
        elif writing and root.read_only:
            error = errors.ReadOnlyRoot(f"root {name} is read-only; tool {tool} would change it")
        elif not root.admits(self._principal, tool, writing=writing):
            error = not_in_group()
        else:
            return root
        raise error.with_context(root=name, path=path[:4096], tool=tool)

    def granted(self) -> tuple[list[ConfinedRoot], list[ConfinedRoot]]:
        """The directories that worker threads may write, and those that they may only read."""
        return (
            [root.confined for root in self if not root.read_only],
            [root.confined for root in self if root.read_only],
        )

    def close(self) -> None:
        for root in self._by_name.values():
            root.confined.close()
