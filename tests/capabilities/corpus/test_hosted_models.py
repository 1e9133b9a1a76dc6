"""Hosted models behind the real server: vectors, answers and rankings come from emulators of the vendors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from armarium.capabilities.corpus.errors import IndexVersionMismatch
from armarium.capabilities.corpus.model_choice import choose_models
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.foundation.errors import ConfigError
from emulators import (
    CohereEmulator,
    Fault,
    MistralEmulator,
    OpenAIEmulator,
    RateLimited,
    Refused,
    ServerError,
    Silent,
    Truncated,
)
from emulators.model_output import INVENTED_CITATION, citations
from support.client import ToolClient, connected
from support.corpus import CorpusProcess
from support.corpus_calls import (
    LAMP,
    WITHOUT_WATCHING,
    Json,
    answer,
    everything_in,
    hits,
    rows,
    run_dir2mcp,
    stored_settings,
    write_lighthouse,
)

KEY = "canary-5f3a9c-key"
WITH_KEY = {"MISTRAL_API_KEY": KEY}
QUESTION = "How often does the horn sound in fog?"
SYSTEM_PROMPT = "You keep the lighthouse. Cite your log."
MAX_CONTEXT_CHARS = 500
TRIES = 6


def configured(directory: Path, **sections: Any) -> Path:
    """A directory with files in it, and with these settings."""
    write_lighthouse(directory)
    (directory / ".dir2mcp.yaml").write_text(yaml.safe_dump({"version": 1, **sections}))
    return directory


def mistral_at(emulator: MistralEmulator) -> Json:
    return {"base_url": emulator.url, "api_key": "${MISTRAL_API_KEY}"}


@contextmanager
def serving(directory: Path, environ: dict[str, str] | None = None) -> Generator[CorpusProcess]:
    with CorpusProcess(directory, environ=WITHOUT_WATCHING | (WITH_KEY if environ is None else environ)) as process:
        process.wait_until_indexed()
        yield process


@asynccontextmanager
async def client_of(process: CorpusProcess) -> AsyncGenerator[ToolClient]:
    async with connected(process.url, key=process.token, never_said=[KEY]) as client:
        yield client


@pytest.fixture(scope="module")
def shared_vendor() -> Generator[MistralEmulator]:
    with MistralEmulator(KEY) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def server(shared_vendor: MistralEmulator, tmp_path_factory: pytest.TempPathFactory) -> Generator[CorpusProcess]:
    rag = {"system_prompt": SYSTEM_PROMPT, "max_context_chars": MAX_CONTEXT_CHARS}
    directory = configured(tmp_path_factory.mktemp("hosted") / "root", mistral=mistral_at(shared_vendor), rag=rag)
    with serving(directory) as process:
        yield process


@pytest.fixture
def mistral(shared_vendor: MistralEmulator, server: CorpusProcess) -> MistralEmulator:
    """Mistral, with nothing wrong and nothing asked yet."""
    shared_vendor.faults.clear()
    shared_vendor.requests.clear()
    shared_vendor.invents_citations = False
    return shared_vendor


@pytest.fixture
async def corpus(server: CorpusProcess) -> AsyncGenerator[ToolClient]:
    async with client_of(server) as client:
        yield client


def test_prose_and_code_are_embedded_by_their_own_models_into_their_own_indexes(
    shared_vendor: MistralEmulator, server: CorpusProcess
) -> None:
    settings = stored_settings(server.state_dir)
    assert (settings["embed_text_model"], settings["embed_text_dim"]) == ("mistral-embed", "1024")
    assert (settings["embed_code_model"], settings["embed_code_dim"]) == ("codestral-embed", "1536")
    assert settings["chat_model"] == "mistral-small-2506"
    embedded = dict(
        rows(
            server.state_dir,
            """SELECT index_kind || ' ' || model || ' ' || length(vector), count(*) FROM chunks
            JOIN embeddings USING (text_hash) WHERE deleted = 0 AND embedding_status = 'ok' GROUP BY 1""",
        )
    )
    assert set(embedded) == {"text mistral-embed 2053", "code codestral-embed 3077"}, "f16, and five bytes of checksum"
    assert sum(embedded.values()) == rows(server.state_dir, "SELECT count(*) FROM chunks WHERE deleted = 0")[0][0]


def test_a_hosted_model_receives_code_with_its_line_breaks(tmp_path: Path) -> None:
    with MistralEmulator(KEY) as vendor, serving(configured(tmp_path / "root", mistral=mistral_at(vendor))):
        inputs = [
            text
            for body in vendor.bodies("/embeddings")
            if body["model"] == "codestral-embed"
            for text in body["input"]
        ]
    assert inputs
    assert all(line in LAMP.splitlines() for text in inputs for line in text.splitlines() if line.startswith("    "))
    assert any("\n    " in text for text in inputs)


async def test_search_embeds_the_query_with_the_model_of_the_index(
    corpus: ToolClient, mistral: MistralEmulator
) -> None:
    assert (await hits(corpus, "rotate_lens", index="code"))[0]["rel_path"] == "lamp.py"
    assert (await hits(corpus, "the horn in fog", index="text"))[0]["rel_path"] == "handbook.md"
    assert [body["model"] for body in mistral.bodies("/embeddings")] == ["codestral-embed", "mistral-embed"]


async def test_an_answer_is_the_models_and_cites_only_what_was_found(
    corpus: ToolClient, mistral: MistralEmulator
) -> None:
    asked = await answer(corpus, "ask", question=QUESTION)
    assert asked["answer"].startswith("It says: ")
    written = citations(asked["answer"])
    assert written
    named = {
        f"[{each['rel_path']}:L{each['span']['start_line']}-L{each['span']['end_line']}]" for each in asked["citations"]
    }
    assert set(written) == named
    assert {each["chunk_id"] for each in asked["citations"]} <= {hit["chunk_id"] for hit in asked["hits"]}


async def test_the_model_is_given_the_system_prompt_the_question_and_cited_chunks_within_the_limit(
    corpus: ToolClient, mistral: MistralEmulator
) -> None:
    asked = await answer(corpus, "ask", question=QUESTION, k=10)
    (body,) = mistral.bodies("/chat/completions")
    assert body["stream"] is True
    system, user = body["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith(SYSTEM_PROMPT)
    assert QUESTION in user["content"]
    given = citations(user["content"])
    best = asked["hits"][0]
    assert given[0] == f"[{best['rel_path']}:L{best['span']['start_line']}-L{best['span']['end_line']}]"
    context = user["content"].partition("Excerpts:\n\n")[2].rpartition("\n\nQuestion:")[0]
    assert len(context) <= MAX_CONTEXT_CHARS
    whole = sum(len(hit["snippet"]) for hit in asked["hits"])
    assert whole > MAX_CONTEXT_CHARS, "or the limit cut nothing"


async def test_an_invented_citation_is_taken_out_and_that_is_said(corpus: ToolClient, mistral: MistralEmulator) -> None:
    mistral.invents_citations = True
    asked = await answer(corpus, "ask", question=QUESTION)
    assert INVENTED_CITATION not in asked["answer"]
    assert "1 citation without a matching excerpt removed" in asked["answer"]
    assert citations(asked["answer"])
    assert "nowhere/invented.md" not in {each["rel_path"] for each in asked["citations"]}


async def test_chunks_alone_ask_no_chat_model(corpus: ToolClient, mistral: MistralEmulator) -> None:
    asked = await answer(corpus, "ask", question=QUESTION, mode="search_only")
    assert "answer" not in asked
    assert asked["hits"]
    assert mistral.bodies("/chat/completions") == []


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ([Refused(on="completions", status=401, body={"message": f"Unauthorized: {KEY}"})], "MISTRAL_AUTH"),
        ([ServerError(on="completions", retry_after=0)] * TRIES, "MISTRAL_FAILED"),
        ([RateLimited(on="completions", retry_after=0)] * TRIES, "MISTRAL_RATE_LIMIT"),
        ([RateLimited(on="completions", retry_after=0, shape="message")] * TRIES, "MISTRAL_RATE_LIMIT"),
        ([Refused(on="completions", status=400)], "MISTRAL_FAILED"),
        ([Truncated(on="completions")], "MISTRAL_FAILED"),
    ],
)
async def test_a_failing_chat_model_is_told_by_code_and_without_the_key_and_sentences_answer_instead(
    corpus: ToolClient, mistral: MistralEmulator, faults: list[Fault], code: str
) -> None:
    mistral.faults.extend(faults)
    asked = await answer(corpus, "ask", question=QUESTION)
    assert asked["answer"].startswith(f"The chat model failed ({code}: ")
    assert KEY not in asked["answer"]
    assert asked["citations"]
    assert not mistral.faults
    assert (await answer(corpus, "ask", question=QUESTION))["answer"].startswith("It says: ")


async def test_a_query_that_cannot_be_embedded_is_searched_for_by_its_words(
    corpus: ToolClient, mistral: MistralEmulator, server: CorpusProcess
) -> None:
    mistral.faults.append(Refused(on="embeddings", status=401))
    found = await hits(corpus, "compressed air from the cellar", index="text")
    assert found[0]["rel_path"] == "handbook.md"
    server.wait_for_log("lexical search only", "MISTRAL_AUTH")


async def test_the_key_is_in_nothing_that_is_stored_logged_or_told(server: CorpusProcess) -> None:
    assert KEY.encode() not in everything_in(server.directory)
    assert KEY not in "".join(server.log)
    assert KEY not in str(server.events)


@pytest.mark.parametrize("shape", ["typed", "message"])
def test_a_rate_limit_while_embedding_is_waited_out(tmp_path: Path, shape: Any) -> None:
    with MistralEmulator(KEY) as emulator:
        emulator.faults.append(RateLimited(on="embeddings", shape=shape))
        emulator.faults.extend([RateLimited(on="embeddings", retry_after=0, shape=shape)] * 3)
        with serving(configured(tmp_path / "root", mistral=mistral_at(emulator))) as process:
            counts = process.wait_until_indexed()
        assert counts["embedded_ok"] == counts["chunks_total"] > 0
        assert not emulator.faults


async def test_a_refused_key_leaves_everything_searchable_by_words_until_a_right_one_comes(tmp_path: Path) -> None:
    with MistralEmulator("another-key") as emulator:
        directory = configured(tmp_path / "root", mistral=mistral_at(emulator))
        with serving(directory) as process:
            counts = process.wait_until_indexed()
            assert (counts["embedded_ok"], counts["errors"]) == (0, 0)
            assert counts["chunks_total"] > 0
            paused = process.wait_for("embed_progress", lambda data: "paused" in data)
            assert paused["data"]["paused"]["code"] == "MISTRAL_AUTH"
            async with client_of(process) as client:
                found = await answer(client, "search", query="compressed air from the cellar")
                assert found["indexing_complete"] is True
                assert found["hits"][0]["rel_path"] == "handbook.md"
                assert "MISTRAL_AUTH" in (await answer(client, "ask", question=QUESTION))["answer"]
        assert KEY.encode() not in everything_in(directory)
        assert KEY not in "".join(process.log) + str(process.events)
        emulator.key = KEY
        with serving(directory) as process:
            counts = process.wait_until_indexed()
    assert counts["embedded_ok"] == counts["chunks_total"] > 0


async def test_without_generated_answers_ask_returns_hits_and_needs_no_chat_model(tmp_path: Path) -> None:
    with MistralEmulator(KEY) as emulator:
        rag = {"generate_answer": False}
        with serving(configured(tmp_path / "root", mistral=mistral_at(emulator), rag=rag)) as process:
            async with client_of(process) as client:
                asked = await answer(client, "ask", question=QUESTION)
        assert "answer" not in asked
        assert asked["citations"] == []
        assert asked["hits"]
        assert emulator.bodies("/chat/completions") == []


async def test_an_openai_compatible_endpoint_embeds_and_answers_without_a_key(tmp_path: Path) -> None:
    with OpenAIEmulator() as emulator:
        endpoint = {"base_url": emulator.url, "embed_text_model": "nomic-embed-text", "chat_model": "llama3.2"}
        chosen: Json = {"embedding": {"provider": "openai"}, "chat": {"provider": "openai"}}
        directory = configured(tmp_path / "root", openai=endpoint, **chosen)
        with serving(directory) as process:
            settings = stored_settings(process.state_dir)
            assert (settings["embed_text_model"], settings["embed_text_dim"]) == ("nomic-embed-text", "768")
            assert (settings["embed_code_model"], settings["embed_code_dim"]) == ("nomic-embed-text", "768")
            async with client_of(process) as client:
                assert (await hits(client, "rotate lens", index="both"))[0]["rel_path"] == "lamp.py"
                asked = await answer(client, "ask", question=QUESTION)
                emulator.faults.append(Refused(on="completions", status=401))
                assert "OPENAI_AUTH" in (await answer(client, "ask", question=QUESTION))["answer"]
        assert asked["citations"]
        assert all("authorization" not in request.headers for request in emulator.requests)
        # The next start knows the dimensions from the index, before anything is embedded.
        with serving(directory) as process:
            async with client_of(process) as client:
                assert (await hits(client, "rotate lens", index="code"))[0]["rel_path"] == "lamp.py"


async def test_a_reranker_changes_the_order_and_one_that_is_silent_or_fails_does_not(tmp_path: Path) -> None:
    query = "Mondays horn"
    with CohereEmulator(None) as emulator:
        directory = configured(tmp_path / "root", rerank={"base_url": emulator.url, "timeout_s": 1.0})
        with serving(directory, {}) as process:
            async with client_of(process) as client:
                reranked = await hits(client, query, k=10)
                emulator.faults.append(Refused(status=401))
                refused = await hits(client, query, k=10)
                emulator.faults.append(Silent())
                silent = await hits(client, query, k=10)
        sent = emulator.bodies("/rerank")
    assert [hit["chunk_id"] for hit in refused] == [hit["chunk_id"] for hit in silent]
    assert {hit["chunk_id"] for hit in reranked} == {hit["chunk_id"] for hit in silent}
    assert sent[0]["query"] == query
    wanted = {"mondays", "horn"}
    shares = [len(wanted & set(hit["snippet"].lower().replace(".", " ").split())) / 2 for hit in reranked]
    assert [hit["score"] for hit in reranked] == sorted(shares, reverse=True)
    assert [hit["score"] for hit in silent] != [hit["score"] for hit in reranked]


def test_another_embedding_model_needs_a_reindex_which_then_works(tmp_path: Path) -> None:
    directory = configured(tmp_path / "root")
    settings_file = directory / ".dir2mcp.yaml"
    with serving(directory, {}) as process:
        pass
    local = stored_settings(process.state_dir)["embed_text_model"]
    with MistralEmulator(KEY) as mistral, OpenAIEmulator() as openai:
        at_mistral = {"version": 1, "mistral": mistral_at(mistral)}
        settings_file.write_text(yaml.safe_dump(at_mistral))
        with serving(directory) as process:
            pass
        assert stored_settings(process.state_dir)["embed_text_model"] == local, "auto stays with what there is"
        assert mistral.bodies("/embeddings") == []
        for provider, section, dimensions in (
            ("mistral", mistral_at(mistral), ("1024", "1536")),
            ("openai", {"base_url": openai.url, "embed_text_model": "nomic-embed-text"}, ("768", "768")),
        ):
            asked = {"version": 1, provider: section, "embedding": {"provider": provider}, "chat": {"provider": "none"}}
            settings_file.write_text(yaml.safe_dump(asked))
            refused = run_dir2mcp("up", directory, environ=WITH_KEY)
            assert refused.returncode == 5
            assert "ERROR: INDEX_VERSION_MISMATCH: " in refused.stderr
            assert "run: dir2mcp reindex" in refused.stderr
            done = run_dir2mcp("reindex", directory, "--json", environ=WITH_KEY)
            assert done.returncode == 0, done.stderr
            settings = stored_settings(process.state_dir)
            assert (settings["embed_text_dim"], settings["embed_code_dim"]) == dimensions
            with serving(directory) as process:
                counts = process.wait_until_indexed()
            assert counts["embedded_ok"] == counts["chunks_total"] > 0


LOCAL = "granite-embedding-30m-english-int8"


def chosen(built_with: str | None, **sections: Any) -> str | None:
    """Who embeds, where an index was built with a model."""
    settings = CorpusSettings.model_validate(sections)
    return choose_models(settings, {"text": built_with, "code": None}).embedders["text"].model


@pytest.mark.parametrize(
    ("built_with", "sections", "model"),
    [
        (None, {}, LOCAL),
        (None, {"mistral": {"api_key": ""}}, LOCAL),
        (None, {"mistral": {"api_key": KEY}}, "mistral-embed"),
        (LOCAL, {"mistral": {"api_key": KEY}}, LOCAL),
        ("mistral-embed", {"mistral": {"api_key": KEY}}, "mistral-embed"),
        ("nomic", {"openai": {"embed_text_model": "nomic"}, "mistral": {"api_key": KEY}}, "nomic"),
    ],
)
def test_auto_embeds_with_what_the_index_was_built_with(
    built_with: str | None, sections: dict[str, Any], model: str
) -> None:
    assert chosen(built_with, **sections) == model


@pytest.mark.parametrize("sections", [{}, {"mistral": {"api_key": KEY}}, {"embedding": {"provider": "local"}}])
def test_an_index_of_a_model_that_nobody_offers_needs_a_reindex_not_a_key(sections: dict[str, Any]) -> None:
    with pytest.raises(IndexVersionMismatch) as told:
        chosen("a-model-of-last-year", **sections)
    assert told.value.hint == "run: dir2mcp reindex"


@pytest.mark.parametrize("sections", [{"embedding": {"provider": "mistral"}}, {"chat": {"provider": "mistral"}}])
def test_a_provider_asked_for_by_name_needs_its_key(sections: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="MISTRAL_API_KEY"):
        chosen(None, **sections)


def test_an_openai_compatible_endpoint_needs_the_names_of_its_models() -> None:
    for section in ("embedding", "chat"):
        with pytest.raises(ConfigError, match="openai"):
            chosen(None, **{section: {"provider": "openai"}})


def test_a_reindex_whose_provider_refuses_says_so_and_fails(tmp_path: Path) -> None:
    directory = configured(tmp_path / "root")
    with MistralEmulator("another key") as mistral:
        asked = {"version": 1, "mistral": mistral_at(mistral), "embedding": {"provider": "mistral"}}
        (directory / ".dir2mcp.yaml").write_text(yaml.safe_dump(asked))
        done = run_dir2mcp("reindex", directory, environ=WITH_KEY)
    assert done.returncode == 1
    assert "ERROR: INDEX_INCOMPLETE: " in done.stderr
    assert "MISTRAL_AUTH" in done.stderr
