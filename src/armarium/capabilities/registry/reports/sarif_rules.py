"""The rules of a SARIF run, and the severity and message that a result derives from them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from armarium.capabilities.registry.reports.fields import array_in, as_object, index_in, object_in, refused, text_in
from armarium.capabilities.registry.values import Severity
from armarium.foundation.schema import Json

ItemT = TypeVar("ItemT")

_BY_LEVEL: Mapping[str, Severity] = {"error": "high", "warning": "medium", "note": "low", "none": "info"}
_BY_SCORE: tuple[tuple[float, Severity], ...] = ((9.0, "critical"), (7.0, "high"), (4.0, "medium"), (0.0, "low"))
"""The CVSS bands of `security-severity`."""
_PLACEHOLDER = re.compile(r"\{(\d{1,3})\}")
_VARIABLE = re.compile(r"\d+|'[^']*'|\"[^\"]*\"|`[^`]*`")
_SCORE = re.compile(r"\d{1,2}(\.\d{1,6})?")


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    level: str = ""
    score: float | None = None
    help_uri: str = ""
    description: str = ""
    messages: Mapping[str, str] = field(default_factory=dict[str, str])


class Rules:
    """The rules of a run: those of the tool and of its extensions."""

    def __init__(self, run: Json, at: str) -> None:
        at = f"{at}.tool"
        tool = object_in(run, "tool", at)
        self._own = _rules_of(object_in(tool, "driver", at), f"{at}.driver")
        self._extensions = [
            _rules_of(as_object(each, f"{at}.extensions[{number}]"), f"{at}.extensions[{number}]")
            for number, each in enumerate(array_in(tool, "extensions", at))
        ]
        self._by_id: dict[str, Rule] = {}
        for rule in (*self._own, *(rule for rules in self._extensions for rule in rules)):
            self._by_id.setdefault(rule.id, rule)

    def of(self, result: Json, at: str) -> Rule:
        """The rule of a result, given by id, index or both. One that has neither is named after its message."""
        named = object_in(result, "rule", at)
        rule_id = text_in(result, "ruleId", at) or text_in(named, "id", f"{at}.rule")
        index = index_in(result, "ruleIndex", at)
        if index is None:
            index = index_in(named, "index", f"{at}.rule")
        component = index_in(object_in(named, "toolComponent", at), "index", f"{at}.rule.toolComponent")
        rules = self._own if component is None else _at(self._extensions, component) or []
        rule = _at(rules, index) if index is not None else None
        rule_id = rule_id or (rule.id if rule else "")
        if not rule_id:
            return unnamed_rule(message_text(result, Rule(""), at))
        if rule is not None and (rule_id == rule.id or rule_id.startswith(f"{rule.id}/")):
            # A result may name a subrule, as in `CA1000/1`.
            return replace(rule, id=rule_id)
        return self._by_id.get(rule_id) or Rule(rule_id)


def unnamed_rule(message: str) -> Rule:
    """A rule for a result without one. Results of the same kind get the same: messages differ in names and numbers."""
    kind = _VARIABLE.sub("", message)
    return Rule(f"unnamed-{hashlib.sha256(kind.encode('utf-8', 'replace')).hexdigest()[:8]}")


def severity(result: Json, rule: Rule, at: str) -> Severity:
    """The severity of a result: by its score if it has one, otherwise by its level."""
    score = _score(object_in(result, "properties", at))
    if score is None:
        score = rule.score
    if score:
        return next(name for least, name in _BY_SCORE if score >= least)
    level = text_in(result, "level", at) or rule.level or "warning"
    if level not in _BY_LEVEL:
        raise refused(f"level must be one of {', '.join(_BY_LEVEL)}", at)
    return _BY_LEVEL[level]


def message_text(result: Json, rule: Rule, at: str) -> str:
    """The message of a result: its own, the rule's, or the rule's id."""
    at = f"{at}.message"
    message = object_in(result, "message", at)
    text = text_in(message, "text", at) or rule.messages.get(text_in(message, "id", at), "")
    arguments = array_in(message, "arguments", at)
    if text and arguments:
        text = _PLACEHOLDER.sub(lambda place: str(_at(arguments, int(place[1])) or place[0]), text)
    return text or text_in(message, "markdown", at) or rule.description or rule.id or "no message"


def _rules_of(component: Json, at: str) -> list[Rule]:
    rules: list[Rule] = []
    for number, each in enumerate(array_in(component, "rules", at)):
        place = f"{at}.rules[{number}]"
        rule = as_object(each, place)
        strings = object_in(rule, "messageStrings", place)
        rules.append(
            Rule(
                text_in(rule, "id", place),
                text_in(object_in(rule, "defaultConfiguration", place), "level", place),
                _score(object_in(rule, "properties", place)),
                text_in(rule, "helpUri", place),
                text_in(object_in(rule, "shortDescription", place), "text", place),
                {name: text_in(as_object(string, place), "text", place) for name, string in strings.items()},
            )
        )
    return rules


def _score(properties: Json) -> float | None:
    """The score, if there is one. Tools write it as text or as a number."""
    found = _SCORE.fullmatch(str(properties.get("security-severity")))
    return float(found[0]) if found else None


def _at(items: list[ItemT], index: int) -> ItemT | None:
    return items[index] if index < len(items) else None
