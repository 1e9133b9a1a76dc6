"""A worker process on a kernel without Landlock."""

from __future__ import annotations

from unittest.mock import patch

from armarium.capabilities.corpus.ingest import worker as prepare_worker
from armarium.foundation.files import landlock

if __name__ == "__main__":
    with patch.object(landlock, "supported_abi", lambda: 0):
        prepare_worker.main()
