"""A RAG server as small as can be, over stdio, run by `gateway_search.py` with NAME DELAY_S HANG_FILE.

It answers the three tools from the standard library alone, so that ten of them start at once and what is measured is
the gateway. Searches take DELAY_S; while HANG_FILE exists it hangs as a whole, also when it is started anew.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

HITS = 8
POLL_S = 0.005
FIELDS = {"username": {"type": "string"}, "query": {"type": "string"}, "sources": {"type": "array"}, "top_k": {}}
TOOLS = ("rag_discover_resources", "rag_get_raw_results", "rag_get_synthesized_results")


class RagServer:
    """Answers one message after another, searches side by side."""

    def __init__(self, name: str, delay_s: float) -> None:
        self._name = name
        self._delay_s = delay_s
        self._writing = threading.Lock()

    def take(self, message: Json) -> None:
        """Answer, at once or in a thread when that takes its time."""
        if "id" not in message:
            return
        if message["method"] == "tools/call" and self._delay_s:
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        else:
            self._answer(message)

    def _answer(self, message: Json) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)}
        with self._writing:
            print(json.dumps(answer), flush=True)

    def _result(self, message: Json) -> Json:
        match message["method"]:
            case "initialize":
                information = {"name": self._name, "version": "1"}
                return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": information}
            case "tools/list":
                schema = {"type": "object", "properties": FIELDS, "required": ["username"]}
                return {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]}
            case "tools/call":
                answer = self._called(message["params"]["name"])
                answer = {**answer, "meta_data": {"provider": self._name}, "contract_version": "rag-tools-v1"}
                return {"content": [{"type": "text", "text": json.dumps(answer)}], "structuredContent": answer}
            case _:
                return {}

    def _called(self, tool: str) -> Json:
        if tool == "rag_discover_resources":
            source = {"id": "notes", "name": "Notes", "sourceType": "memory", "authRequired": False, "authMode": "none"}
            return {"results": {"resources": [source]}}
        time.sleep(self._delay_s)
        if tool == "rag_get_synthesized_results":
            return {"results": {"answer": f"{self._name} knows."}}
        return {"results": {"hits": [self._hit(rank) for rank in range(HITS)], "stats": {"total_found": HITS}}}

    def _hit(self, rank: int) -> Json:
        text = f"Passage {rank} of {self._name}: the lamp is lit at dusk, and the keeper writes it down. " * 5
        return {"id": f"{self._name}-{rank}", "score": 1 / (rank + 1), "resourceId": "notes", "snippet": text[:120]} | {
            "chunk": text,
            "title": f"Page {rank}",
            "uri": f"notes://{self._name}/{rank}",
        }


def serve(name: str, delay_s: float, hang: Path) -> None:
    """Read requests until there are no more."""
    server = RagServer(name, delay_s)
    for line in sys.stdin:
        while hang.exists():
            time.sleep(POLL_S)
        server.take(json.loads(line))


serve(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
