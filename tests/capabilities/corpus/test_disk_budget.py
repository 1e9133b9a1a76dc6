"""No directory can fill the disk: each file has a text budget, and the state directory a size limit."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest

from armarium.capabilities.corpus.errors import FileTooLarge, StateFull
from armarium.capabilities.corpus.ingest.budgets import TextBudget
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.worker_pool import WorkerPool
from armarium.capabilities.corpus.ingest.worker_process import WorkerSetup
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import IngestSettings
from armarium.capabilities.corpus.storage.prepared import Prepared, PrepareRequest
from armarium.foundation.files.confine import ConfinedRoot
from support.open_corpus import OpenCorpus

SMALL = IngestSettings(watch=False, max_state_gb=1e-9)


def growing_zip(megabytes: int) -> bytes:
    """Every line is another, so that no chunk is like the next, and all of it packs well."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(megabytes):
            lines = (f"{number * 20_000 + line:012} the same words follow every number here" for line in range(20_000))
            archive.writestr(f"{number}.txt", "\n".join(lines))
    return file.getvalue()


def prepared(root: Path, *names: str) -> list[Prepared]:
    with ConfinedRoot(str(root)) as confined:
        pool = WorkerPool(confined, WorkerSetup(Instructions((), ()), 1024**3), size=1)
        try:
            return [each for each in pool.prepare(map(PrepareRequest, names)) if isinstance(each, Prepared)]
        finally:
            pool.close()


def test_an_archive_that_grows_past_its_budget_is_an_error_of_that_one_file(tmp_path: Path) -> None:
    packed = growing_zip(24)
    (tmp_path / "bomb.zip").write_bytes(packed)
    (tmp_path / "good.md").write_text("# Good\n\nAn honest file.\n")
    documents = prepared(tmp_path, "bomb.zip", "good.md")
    assert {each.rel_path: each.status for each in documents if each.container is None} == {
        "bomb.zip": "error",
        "good.md": "ok",
    }
    (bomb,) = [each for each in documents if each.rel_path == "bomb.zip"]
    assert (bomb.error or "").startswith(f"{FileTooLarge.code}: it holds more text than a file of its size may")
    chunks = [chunk for each in documents for part in each.representations for chunk in part.chunks]
    assert (
        sum(len(chunk.text) + len(chunk.context) for chunk in chunks) <= TextBudget(len(packed), 2500).max_chars + 100
    )


def test_a_document_that_grows_past_its_budget_keeps_nothing(tmp_path: Path) -> None:
    choose = random.Random(5)
    some = "".join(f"<w:p><w:r><w:t>{choose.getrandbits(64):x} words</w:t></w:r></w:p>" for _ in range(100))
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{relations}">'
        f'<Relationship Id="r" Type="{kind}" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{main}"><w:body>{some * 3000}</w:body></w:document>',
    }
    with zipfile.ZipFile(tmp_path / "long.docx", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    (document,) = prepared(tmp_path, "long.docx")
    assert document.status == "error"
    assert (document.error or "").startswith(FileTooLarge.code)
    assert not document.representations


def test_ordinary_archives_stay_within_their_budget(tmp_path: Path) -> None:
    choose = random.Random(3)
    words = [f"{choose.getrandbits(20):x}" for _ in range(3000)]
    with zipfile.ZipFile(tmp_path / "notes.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(30):
            file.writestr(f"{number}.md", "\n\n".join(" ".join(choose.choices(words, k=60)) for _ in range(500)))
    documents = prepared(tmp_path, "notes.zip")
    assert {each.status for each in documents} == {"ok"}
    assert len(documents) == 31


@pytest.fixture
def corpus(tmp_path: Path) -> OpenCorpus:
    for name in ("one", "two"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nThe {name} file is about quinces.\n")
    return OpenCorpus(tmp_path)


async def listed(corpus: Corpus) -> dict[str, str]:
    _, files = await corpus.list_files("", None, 100, 0)
    return {file["rel_path"]: file["status"] for file in files}


async def test_an_index_that_reached_its_budget_adds_nothing_loses_nothing_and_says_so(corpus: OpenCorpus) -> None:
    await corpus.index()
    (corpus.root / "three.md").write_text("# three\n\nThe third file is about quinces.\n")
    (corpus.root / "two.md").unlink()
    async with corpus.opened(ingest=SMALL) as full:
        assert corpus.failed_files == {"three.md": StateFull.code}
        assert corpus.failures == []
        found = await listed(full)
    assert found == {"one.md": "ok", "three.md": "error"}
    corpus.failed_files.clear()
    # There is room again: the next scan adds what was left out.
    async with corpus.opened() as roomy:
        found = await listed(roomy)
    assert found == {"one.md": "ok", "three.md": "ok"}
