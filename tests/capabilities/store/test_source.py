"""The store among the sources of the server: each caller's own projects, with what can be found in them."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.source import StoreSource
from armarium.foundation.security.identity import Principal, key_hash
from armarium.foundation.tools import Call
from armarium.retrieval.sources import SourceFilters
from support.store_calls import Files, stored_chunk
from support.stored_files import StoredFiles, WordVectors, index_file


def _caller() -> Call:
    key = secrets.token_urlsafe(16)
    return Call(Principal("someone", (), key_hash(key)), credential=key)


async def _indexed(files: Files, project: str, path: str, text: str) -> None:
    scope = Scope(files.tenant, project)
    await StoredFiles(files.database, scope).write(path, text)
    models = StoreModels(local=WordVectors())
    await index_file(FileIndex(files.database, models), scope, path)


async def test_a_caller_has_the_projects_in_which_something_can_be_found_and_no_others(database: StoreDatabase) -> None:
    anna, lex = _caller(), _caller()
    files = Files(database, anna.principal.apikey_hash)
    await _indexed(files, "notes", "/lamp.md", "The lamp is lit at dusk.")
    await _indexed(files, "notes", "/horn.md", "The horn sounds in fog.")
    await StoredFiles(database, Scope(files.tenant, "drafts")).write("/later.md", "Not indexed yet.")
    source = StoreSource(files.store)
    (notes,) = await source.collections(anna)
    assert (notes.id, notes.name, notes.documents, notes.chunks) == ("store:notes", "notes", 2, 2)
    assert notes.last_indexed is not None
    assert await source.collections(lex) == []


async def test_a_search_is_the_callers_own_in_the_one_project(database: StoreDatabase) -> None:
    caller = _caller()
    files = Files(database, caller.principal.apikey_hash)
    files.search.found = [stored_chunk("notes", "/a/lamp.md", 4, 9, "lit", 0.7)]
    (hit,) = (await StoreSource(files.store).search(caller, "store:notes", "lamp", 3)).hits
    asked = (caller.principal.apikey_hash, "notes", "lamp", "", 3, caller.credential)
    assert files.search.asked == [asked]
    assert (hit.uri, hit.title, hit.collection, hit.text) == (
        "store://notes/a/lamp.md",
        "a/lamp.md",
        "store:notes",
        "lit",
    )
    assert hit.provenance == {"project": "notes", "path": "/a/lamp.md", "start_byte": 4, "end_byte": 9}


async def test_dates_select_by_modification_and_owners_are_the_caller(database: StoreDatabase) -> None:
    caller = _caller()
    files = Files(database, caller.principal.apikey_hash)
    await _indexed(files, "notes", "/lamp.md", "The lamp is lit at dusk.")
    files.search.found = [stored_chunk("notes", "/lamp.md", 0, 8, "The lamp", 0.7)]
    source, now, day = StoreSource(files.store), datetime.now(UTC), timedelta(days=1)

    async def titles(filters: SourceFilters) -> list[str]:
        found = await source.search(caller, "store:notes", "lamp", 3, filters)
        assert not found.unmet_filters
        return [hit.title for hit in found.hits]

    assert await titles(SourceFilters(date_from=now - day, date_to=now + day)) == ["lamp.md"]
    assert await titles(SourceFilters(date_from=now + day)) == []
    assert await titles(SourceFilters(date_to=now - day)) == []
    assert await titles(SourceFilters(owners=["someone", "else"])) == ["lamp.md"]
    assert await titles(SourceFilters(owners=["else"])) == []
    tagged = await source.search(caller, "store:notes", "lamp", 3, SourceFilters(tags=["x"]))
    assert (list(tagged.hits), list(tagged.unmet_filters)) == ([], ["tags"])
    (hit,) = (await source.search(caller, "store:notes", "lamp", 3)).hits
    assert hit.modified is not None
    assert timedelta() <= now + day - hit.modified < 2 * day


async def test_a_change_that_waits_for_its_index_is_reported_with_the_hits(database: StoreDatabase) -> None:
    anna, lex = _caller(), _caller()
    files = Files(database, anna.principal.apikey_hash)
    await files.ok("write", project="notes", path="/new.md", content="The lamp is lit.")
    source = StoreSource(files.store)
    assert (await source.search(anna, "store:notes", "lamp", 3)).incomplete == "files that changed are not indexed yet"
    assert (await source.search(anna, "store:other", "lamp", 3)).incomplete is None
    assert (await source.search(lex, "store:notes", "lamp", 3)).incomplete is None
    await _indexed(files, "done", "/a.md", "The lamp is lit.")
    await _indexed(files, "notes", "/a.md", "The lamp is lit.")
    waiting = {each.name: each.incomplete for each in await source.collections(anna)}
    assert waiting == {"done": None, "notes": "files that changed are not indexed yet"}
