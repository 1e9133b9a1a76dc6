"""The store among the sources of the server: each caller's own projects, with what can be found in them."""

from __future__ import annotations

import secrets

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.source import StoreSource
from armarium.foundation.identity import Principal, key_hash
from armarium.foundation.tools import Call
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
    (hit,) = await StoreSource(files.store).search(caller, "store:notes", "lamp", 3)
    asked = (caller.principal.apikey_hash, "notes", "lamp", "", 3, caller.credential)
    assert files.search.asked == [asked]
    assert (hit.uri, hit.title, hit.collection, hit.text) == (
        "store://notes/a/lamp.md",
        "a/lamp.md",
        "store:notes",
        "lit",
    )
    assert hit.provenance == {"project": "notes", "path": "/a/lamp.md", "start_byte": 4, "end_byte": 9}
