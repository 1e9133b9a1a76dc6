"""Lists the capabilities of this server. To ship without one, delete its folder and its line here."""

from __future__ import annotations

from importlib import import_module

from armarium.manifest import Manifest

# In the order in which they open, and reversed, close. Those that subscribe to events come before the corpus, which
# publishes them from its first scan to its last. The gateway uses all others, so it opens last.
_CAPABILITIES = (
    "sandbox",
    "store",
    "registry",
    "corpus",
    "gateway",
)

MANIFESTS: tuple[Manifest, ...] = tuple(
    import_module(f"armarium.capabilities.{name}.manifest").MANIFEST for name in _CAPABILITIES
)
