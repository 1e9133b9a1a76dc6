"""A RAG server of the three tools that starts at once; run as a program, with nothing but the standard library.

Its arguments are the ids of its sources, and options: `--identity=NAME`, the parameter with which its tools receive the
caller's name, without which and besides which they fail; `--closed`, to say so in their schemas; `--failing`, to fail
always; `--more=FILE`, a JSON file with further fields of each tool's response; `--bearer=TOKEN`, without which searches
fail; `--refused=ID`, a source that it lists and does not search. Every hit has the process that found it as its title.
A question that is `until FILE` is answered when the file exists.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

Json = dict[str, Any]

_more: Json = {}
"""By tool, what its response has besides the usual."""
_TOOLS = {
    "rag_discover_resources": ("username", "filters"),
    "rag_get_raw_results": ("username", "query", "sources", "top_k"),
    "rag_get_synthesized_results": ("username", "query", "sources", "top_k", "synthesis_params", "provided_context"),
}


def _answer(name: str, given: Json, sources: list[str], options: dict[str, str]) -> Json:
    token = options.get("--bearer")
    # It lists its sources to everybody, but not to those with a wrong token.
    if given.get("bearer") not in ((None, token) if name == "rag_discover_resources" else (token,)):
        return {"error": {"code": "token_expired", "message": "the token is not valid"}}
    if name == "rag_discover_resources":
        shared = {"sourceType": "wiki", "authRequired": token is not None, "authMode": "bearer" if token else "none"}
        return {"resources": [{"id": each, "name": each.title(), **shared} for each in sources]}
    if options.get("--refused") in given["sources"]:
        return {"error": {"code": "unauthorized_source", "message": "you may not search it"}}
    kind, _, rest = given["query"].partition(" ")
    while kind == "until" and not os.path.exists(rest):
        time.sleep(0.01)
    if name == "rag_get_synthesized_results":
        return {"answer": f"It is {os.getpid()} that answers.", "citations": [{"resourceId": given["sources"][0]}]}
    hits = [
        {"id": f"{each}-1", "score": 1.0, "resourceId": each, "snippet": f"of {each}", "title": str(os.getpid())}
        | {"provenance": {"called_with": given}}
        for each in given["sources"]
    ]
    return {"hits": hits[: given.get("top_k")]}


def _result(method: str, params: Json, sources: list[str], options: dict[str, str]) -> Json:
    identity = options.get("--identity", "username")
    if method == "initialize":
        about = {"name": "light", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schemas = {
            name: {
                "type": "object",
                "properties": {
                    **{each if each != "username" else identity: {} for each in taken},
                    **({"bearer": {"type": "string"}} if "--bearer" in options else {}),
                },
                "required": [identity],
                **({"additionalProperties": False} if "--closed" in options else {}),
            }
            for name, taken in _TOOLS.items()
        }
        return {"tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]}
    if method == "tools/call":
        name, given = params["name"], params["arguments"]
        if "--failing" in options:
            return {"content": [{"type": "text", "text": "the index is gone"}], "isError": True}
        accepted = {each if each != "username" else identity for each in _TOOLS[name]}
        if "--identity" in options and not {identity} <= given.keys() <= accepted:
            return {"content": [{"type": "text", "text": "unexpected arguments"}], "isError": True}
        body = {"results": _answer(name, given, sources, options), "contract_version": "rag-tools-v1"} | _more.get(
            name, {}
        )
        return {"content": [{"type": "text", "text": json.dumps(body)}], "structuredContent": body}
    return {}


def main() -> None:
    sources = [each for each in sys.argv[1:] if not each.startswith("--")]
    options = {name: value for name, _, value in (each.partition("=") for each in sys.argv[1:]) if name[:2] == "--"}
    lock = threading.Lock()
    if "--more" in options:
        with open(options["--more"], encoding="utf-8") as file:
            _more.update(json.load(file))

    def work(message: Json) -> None:
        try:
            answer = {"result": _result(message["method"], message.get("params") or {}, sources, options)}
        except (KeyError, TypeError):
            answer = {"error": {"code": -32602, "message": "an argument is missing"}}
        with lock:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            threading.Thread(target=work, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
