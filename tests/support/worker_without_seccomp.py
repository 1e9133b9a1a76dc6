"""A worker process on a kernel without seccomp filters."""

from __future__ import annotations

from unittest.mock import patch

from armarium.capabilities.corpus.ingest import worker as prepare_worker
from armarium.foundation.processes import seccomp

if __name__ == "__main__":
    with patch.object(seccomp, "is_supported", lambda: False):
        prepare_worker.main()
