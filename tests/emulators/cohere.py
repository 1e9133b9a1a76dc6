"""Emulator of Cohere's reranking endpoint, validated against its published OpenAPI."""

from __future__ import annotations

from emulators import schemas
from emulators.model_output import relevance
from emulators.server import Emulator, Json, Stream, VendorRefusal, Whole

_request = schemas.published_operation("cohere", "/v2/rerank", "request", schemas.RERANK_REQUEST)
_answer = schemas.published_operation("cohere", "/v2/rerank", "200", schemas.RERANK_ANSWER)


class CohereEmulator(Emulator):
    """Cohere with a reranker that counts shared words."""

    version = "v2"

    def __init__(self, key: str | None = "cohere-emulator-key") -> None:
        super().__init__(key)

    def respond(self, path: str, body: Json) -> Whole | Stream:
        """Answer a request."""
        if path != "/rerank":
            raise VendorRefusal(404, self.error_body(404, "not found", "not_found"))
        self.complain_about_request(_request(body))
        scored = [(relevance(body["query"], text), index) for index, text in enumerate(body["documents"])]
        best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[: body.get("top_n", len(scored))]
        results = [{"index": index, "relevance_score": score} for score, index in best]
        return Whole({"id": "rerank-1", "results": results, "meta": {"api_version": {"version": "2"}}}, _answer)

    def error_body(self, status: int, message: str, kind: str) -> Json:
        """Cohere's own shape of errors."""
        return {"id": "error-1", "message": message}
