"""Looks again at single paths that changed, by the rules of a whole discovery."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from armarium.capabilities.corpus.files.discover import DiscoveryRules, FoundFile, discover_below
from armarium.capabilities.corpus.files.paths import is_storable
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.errors import FileError
from armarium.foundation.files.ignore import GitIgnores
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_names import leads_through_staged


def rediscover(
    root: ConfinedRoot, rules: DiscoveryRules, rel_path: str, cancellation: Cancellation
) -> Iterator[FoundFile]:
    """What is at the path now: a file, the files of a directory, or nothing that belongs to the corpus.

    `rel_path` is the name in the file system.

    Links are not followed here. Where the rules follow them, what one change adds or takes away is only known after a
    whole discovery.
    """
    if not is_storable(escape_name(rel_path)) or leads_through_staged(rel_path):
        return
    try:
        with root.opened(rel_path, os.O_PATH | os.O_NOFOLLOW) as fd:
            status = os.fstat(fd)
            is_directory = stat.S_ISDIR(status.st_mode)
            if root.locate(fd) != rel_path or _is_hidden(root, rules, rel_path, is_directory):
                return
            if stat.S_ISREG(status.st_mode):
                yield FoundFile(escape_name(rel_path), status.st_size, status.st_mtime_ns, status.st_ino)
            elif is_directory:
                yield from discover_below(root, rules, rel_path, cancellation)
    except (OSError, FileError):
        return


def _is_hidden(root: ConfinedRoot, rules: DiscoveryRules, rel_path: str, is_directory: bool) -> bool:
    if rules.exclusion.excludes_path(rel_path, is_directory=is_directory):
        return True
    if not rules.gitignore:
        return False
    ends = [index for index, char in enumerate(rel_path) if char == "/"] + [len(rel_path)]
    steps = [rel_path[:end] for end in ends]
    return any(GitIgnores.above(root.fd, step).hides_entry(step, is_directory or step != rel_path) for step in steps)
