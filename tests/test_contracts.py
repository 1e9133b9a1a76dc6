"""Every requirement of the contracts is shown by a test, or a decision record says why we do something else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from reference.contracts_page import Contract, contracts, marked_tests

REPOSITORY = Path(__file__).resolve().parent.parent
CONTRACTS = {contract.title: contract for contract in contracts(REPOSITORY)}
TESTS = marked_tests(REPOSITORY)


@pytest.fixture(params=CONTRACTS)
def contract(request: pytest.FixtureRequest) -> Contract:
    return CONTRACTS[request.param]


def test_every_requirement_is_shown_or_decided(contract: Contract) -> None:
    unmet = [each.id for each in contract.requirements if not (each.id in TESTS or each.decision)]
    assert unmet == []


def test_decisions_that_are_named_exist(contract: Contract) -> None:
    known = {int(file.name[:4]) for file in (REPOSITORY / "docs/decisions").glob("[0-9]*.md")}
    assert {each.decision for each in contract.requirements if each.decision} <= known


def test_every_id_is_used_once() -> None:
    ids = Counter(each.id for contract in CONTRACTS.values() for each in contract.requirements)
    assert [identifier for identifier, times in ids.items() if times > 1] == []


def test_marks_name_requirements_that_exist() -> None:
    known = {each.id for contract in CONTRACTS.values() for each in contract.requirements}
    assert set(TESTS) <= known
