"""Recognises files that were renamed between two scans by their content."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable

from armarium.capabilities.registry.contents import hashes_of
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files
from armarium.capabilities.registry.storage.database import Reader

_MIN_COMMON = 0.4
"""The least share of the hashes of a sketch that a renamed file keeps."""
_FEW_HASHES = 6
"""Files with fewer lines must be equal, and have the same name in another directory."""


def renamed_files(
    reader: Reader,
    paths: ProjectPaths,
    reported: Container[str],
    appeared: Iterable[str],
    sketch_of: Callable[[str], bytes],
) -> dict[str, str]:
    """The earlier path of each reported file that appeared, if a similar one disappeared."""
    gone = [each for each in files.sketched(reader) if each[0] not in reported and not paths.exists(each[0])]
    if not gone:
        return {}
    sketches = {path: hashes_of(sketch) for path, sketch in gone}
    by_hash: defaultdict[int, list[str]] = defaultdict(list)
    for path, hashes in sketches.items():
        for each in hashes:
            by_hash[each].append(path)
    pairs: list[tuple[float, bool, str, str]] = []
    for path in appeared:
        hashes = hashes_of(sketch_of(path))
        common = Counter(old for each in hashes for old in by_hash.get(each, ()))
        for old, count in common.items():
            share = count / max(len(hashes), len(sketches[old]))
            same_name = old.rpartition("/")[2] == path.rpartition("/")[2]
            if share >= _MIN_COMMON if len(hashes) >= _FEW_HASHES else share == 1 and same_name:
                pairs.append((share, same_name, old, path))
    earlier: dict[str, str] = {}
    for _, _, old, path in sorted(pairs, key=lambda pair: (-pair[0], not pair[1], pair[2:])):
        if path not in earlier and old in sketches:
            earlier[path] = old
            del sketches[old]
    return earlier
