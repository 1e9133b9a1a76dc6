"""A RAG server of the three tools that starts at once; run as a program, with nothing but the standard library.

Its arguments are the ids of its sources. Every hit has the process that found it as its title. A question that is
`until FILE` is answered when the file exists.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

Json = dict[str, Any]

_TOOLS = {
    "rag_discover_resources": ("username", "filters"),
    "rag_get_raw_results": ("username", "query", "sources", "top_k"),
    "rag_get_synthesized_results": ("username", "query", "sources", "top_k", "synthesis_params", "provided_context"),
}


def _answer(name: str, given: Json, sources: list[str]) -> Json:
    if name == "rag_discover_resources":
        shared = {"sourceType": "wiki", "authRequired": False, "authMode": "none"}
        return {"resources": [{"id": each, "name": each.title(), **shared} for each in sources]}
    kind, _, rest = given["query"].partition(" ")
    while kind == "until" and not os.path.exists(rest):
        time.sleep(0.01)
    if name == "rag_get_synthesized_results":
        return {"answer": f"It is {os.getpid()} that answers.", "citations": [{"resourceId": given["sources"][0]}]}
    hits = [
        {"id": f"{each}-1", "score": 1.0, "resourceId": each, "snippet": f"of {each}", "title": str(os.getpid())}
        for each in given["sources"]
    ]
    return {"hits": hits[: given.get("top_k")]}


def _result(method: str, params: Json, sources: list[str]) -> Json:
    if method == "initialize":
        about = {"name": "light", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schemas = {
            name: {"type": "object", "properties": {each: {} for each in taken}, "required": ["username"]}
            for name, taken in _TOOLS.items()
        }
        return {"tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]}
    if method == "tools/call":
        body = {"results": _answer(params["name"], params["arguments"], sources), "contract_version": "rag-tools-v1"}
        return {"content": [{"type": "text", "text": json.dumps(body)}], "structuredContent": body}
    return {}


def main() -> None:
    sources, lock = sys.argv[1:], threading.Lock()

    def work(message: Json) -> None:
        result = _result(message["method"], message.get("params") or {}, sources)
        with lock:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            threading.Thread(target=work, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
