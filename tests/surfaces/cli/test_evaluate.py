"""`armarium eval` prints measures as a table or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armarium.retrieval.evaluation import UnreadableSet
from armarium.surfaces.cli.evaluate import evaluate_set


@pytest.fixture
def judged_set(tmp_path: Path) -> Path:
    directory = tmp_path / "harbour"
    directory.mkdir()
    documents = [
        {"id": "a", "title": "", "text": "Ships leave the harbour."},
        {"id": "b", "title": "", "text": "Bread."},
    ]
    (directory / "docs.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (directory / "queries.jsonl").write_text(json.dumps({"id": "1", "text": "when do ships leave"}))
    (directory / "qrels.tsv").write_text("1\ta\t1\n")
    return directory


def test_measures_are_printed_as_a_table(judged_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate_set(judged_set, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "harbour: 2 documents, 1 queries, index text"
    assert lines[1].split() == ["nDCG@10", "recall@10", "recall@100", "MRR@10"]
    assert [line.split()[0] for line in lines[2:]] == ["words", "vectors", "hybrid"]
    assert lines[4].split()[1:] == ["1.0000"] * 4


def test_measures_are_printed_as_json(judged_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate_set(judged_set, index="code", limit=1, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["set"], answer["index"], answer["documents"], answer["queries"]) == ("harbour", "code", 2, 1)
    assert answer["measures"]["words"] == {"ndcg_10": 1, "recall_10": 1, "recall_100": 1, "mrr_10": 1}


def test_a_directory_without_a_judged_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSet):
        evaluate_set(tmp_path, as_json=True)
