"""The default rules for credentials, and the checks that reject names and placeholders.

A rule is one regular expression in RE2's syntax. It cannot distinguish `token = parser.next_token_value` from a token,
so the text of groups with certain names is checked again: `value` must not consist of words, `scrambled` must have
random letters of both cases, `password` must not be a placeholder, `host` not an example, `passphrase` needs letters
and digits, `basic` is a user and a password. Patterns in the settings may use the same names.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretRule:
    """A kind of credential and its pattern."""

    name: str
    pattern: str
    ends_with: str | None = ""
    """What ends the credential, if a match is only its beginning: None is the end of the line, "" the end of the
    match."""


# What separates a key from its value in code, JSON, YAML or a shell, and the quote before the value.
_IS = r"""["'\]]{0,2}\s{0,5}(?::=|=>|[:=])\s{0,5}["'`]?"""

# What separates them in a table, a list, markup or a command: no words, except a few short ones such as
# `</key><string>`, the rest of a row of headings, or `is now`.
_BESIDE = r"(?:[^0-9A-Za-z]+[0-9a-z]{1,8}){0,4}[^0-9A-Za-z]+"

DEFAULT_RULES: tuple[SecretRule, ...] = (
    SecretRule("aws-access-key-id", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}"),
    # The contract's rule matches any 40 characters, which includes git commits and many import paths.
    SecretRule(
        "aws-secret",
        r"(?i)aws.{0,20}secret(?:.{0,20}"
        + _IS
        + r"(?:[0-9a-zA-Z/+=]{40}|(?P<value>[0-9a-zA-Z/+=]{20,}))|"
        + _BESIDE
        + r"(?P<scrambled>[0-9a-zA-Z/+]{40})(?:[^0-9a-zA-Z/+=]|$))",
    ),
    SecretRule(
        "secret-key",
        r"(?i)secret[ _-]?(?:access[ _-]?)?key" + _BESIDE + r"(?P<scrambled>[0-9a-zA-Z/+]{40})(?:[^0-9a-zA-Z/+=]|$)",
    ),
    SecretRule(
        "credential",
        r"(?i)(?:secret|password|passwd|credentials?|(?:access|api|auth|account|encryption|private|secret)[_-]?key)"
        + _IS
        + r"(?P<value>[0-9a-zA-Z/+=]{32,})",
    ),
    SecretRule(
        "password",
        # `db_password: x`, as in settings. The value is a literal, not a call or an attribute.
        r"(?i)(?:password|passwd|passphrase|[_-]pwd)"
        + _IS
        + r"""(?P<passphrase>[0-9A-Za-z!@#^&*+=?~_/-]{8,64})(?:["'`,;}\s]|$)""",
    ),
    SecretRule(
        "basic-auth",
        r"""(?i)authorization["']?\s*[:=,]\s*["']?basic\s+(?P<basic>[A-Za-z0-9+/]{8,}={0,2})""",
    ),
    SecretRule(
        "docker-auth", r"""(?s)"auths"\s*:\s*\{.{0,400}?"(?:auth|identitytoken)"\s*:\s*"[A-Za-z0-9+/_.-]{8,}={0,2}\""""
    ),
    SecretRule(
        "authorization",
        r"""(?i)(?:authorization["']?\s*[:=]\s*["']?bearer\s+[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"""
        r"|(?:access|id|refresh)_token" + _IS + r"(?P<value>[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}))",
    ),
    SecretRule("jwt", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"),
    SecretRule("bearer", r"(?i)\bbearer\s+(?P<value>[A-Za-z0-9_.~+/-]{20,})"),
    SecretRule("token", r"(?i)token" + _IS + r"(?P<value>[A-Za-z0-9_.-]{20,})"),
    SecretRule("api-key", r"\b(?:sk_[a-z0-9]{32}|api_[A-Za-z0-9]{32})"),
    SecretRule("github", r"\b(?:gh[opsur]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})"),
    SecretRule("gitlab", r"\bglpat-(?P<value>[A-Za-z0-9_-]{20,})"),
    SecretRule("slack", r"\b(?:xox[abeoprs]-(?:[0-9]-)?|xapp-[0-9]-)[A-Za-z0-9]{8,}-[A-Za-z0-9-]{8,}"),
    SecretRule(
        "slack-webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/T[A-Za-z0-9]{6,}/[A-Za-z0-9/]{12,}"
    ),
    SecretRule("stripe", r"\b(?:[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{32,})"),
    SecretRule("google-api-key", r"\bAIza[0-9A-Za-z_-]{35}"),
    SecretRule("google-oauth", r"\b(?:ya29\.(?P<value>[0-9A-Za-z_-]{20,})|GOCSPX-[0-9A-Za-z_-]{28})"),
    SecretRule("google-service-account", r'"private_key_id"\s*:\s*"[0-9a-f]{40}"'),
    SecretRule("model-provider", r"\bsk-(?:[a-z]{2,8}-(?:[a-z]{0,8}[0-9]{1,2}-)?)?(?P<value>[A-Za-z0-9_-]{20,})"),
    SecretRule("digitalocean", r"\bdo[opr]_v1_[0-9a-f]{64}\b"),
    SecretRule("telegram", r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}\b"),
    SecretRule("npm", r"\bnpm_[A-Za-z0-9]{36}\b"),
    SecretRule("pypi", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
    SecretRule("hugging-face", r"\bhf_[A-Za-z0-9]{34}\b"),
    SecretRule("sendgrid", r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    SecretRule("azure-storage", r"\b(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{40,86}=="),
    SecretRule(
        "private-key",
        # Programs that read keys contain the header too, so a part of the key must follow: after a line end or its
        # escape, and after any comment or quote characters.
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\\r)?(?:\\n|\s)"
        r"""[\s>#*"'+\\]{0,40}(?:[A-Za-z0-9+/=]{16}|(?:Proc-Type|DEK-Info|Version|Comment|Hash): )""",
        ends_with="-----END ",
    ),
    SecretRule("putty-key", r"PuTTY-User-Key-File-[23]: ", ends_with="Private-MAC: "),
    SecretRule(
        "url-password",
        r"""://[^\s/:@"'`<>\\]{0,64}:(?P<password>[^\s/:@"'`<>\\]{3,128})@(?P<host>[A-Za-z0-9.-]{1,253})""",
    ),
)


def named_rules(patterns: Sequence[str] | None) -> tuple[SecretRule, ...]:
    """The rules for the patterns in the settings. Default rules keep their names, others are numbered."""
    if patterns is None:
        return DEFAULT_RULES
    defaults = {rule.pattern: rule for rule in DEFAULT_RULES}
    # Other patterns may match only the text before a credential.
    return tuple(
        defaults.get(pattern) or SecretRule(f"pattern {number}", pattern, ends_with=None)
        for number, pattern in enumerate(patterns, 1)
    )


_PLACEHOLDER = re.compile(
    r"x{3,}|\*+|\.{3,}|(?:my|your|the|some|new|old|db|user|test|super)?[_-]*"
    r"(?:pass(?:word|wd|phrase)?|passwort|pwd?|secret|token|(?:api)?[_-]*key|credentials?|value|here|string)"
    r"|changeme|example|dummy|redacted|hidden|guest|admin|root|postgres|mysql|foo|bar|baz|user(?:name)?|test",
    re.IGNORECASE,
)
_EXAMPLE_HOST = re.compile(
    r"(?:.*\.)?example(?:\.(?:com|org|net|edu))?|.*\.(?:example|invalid|test)|host(?:name)?|server|domain(?:\.com)?"
    r"|proxy|(?:my|your)[a-z-]*(?:\.com)?",
    re.IGNORECASE,
)
# `password1`, `new_password_2`, `your-db-password-123`, and derived values: `sha256_of_password`.
_NUMBERED_NAME = re.compile(
    r".*(?:pass(?:word|wd|phrase)?|passwort|pwd|secret|token|key|credentials?|value|example|changeme|user(?:name)?)"
    r"[_-]*[0-9]*|(?:sha|md|scram|bcrypt|pbkdf|argon)[_-]?[0-9].*|x{3,}.*|/.*",
    re.IGNORECASE,
)
_NOT_LITERAL = frozenset("{}$%<>[]()")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_UNSPEAKABLE = re.compile(r"[bcdfghjklmnpqrstvwxz]{5}", re.IGNORECASE)
_LONGEST_WORD = 15
_SHORTEST_WORDS = 3.0
"""Words in code are longer than this on average. Runs of one case in random letters are shorter."""
_MOST_DIGITS = 3
_FEWEST_CHARACTERS = 6
_SHORT_WORD = 2
_MOST_SHORT_WORDS = 3


def is_made_up(value: str) -> bool:
    """Whether a value looks generated: not a name, a path or a placeholder."""
    if len(set(value.lower())) < _FEWEST_CHARACTERS or "xxxx" in value.lower():
        return False
    words: list[str] = _WORD.findall(value)
    return (
        sum(char.isdigit() for char in value) > _MOST_DIGITS
        or sum(map(len, words)) < _SHORTEST_WORDS * max(1, len(words))
        or any(len(word) > _LONGEST_WORD or _UNSPEAKABLE.search(word) for word in words)
    )


def is_scrambled(value: str) -> bool:
    """Whether a value has random letters of both cases: not a name, a path or a hexadecimal hash."""
    if value in (value.lower(), value.upper()):
        return False
    short_words = sum(len(word) <= _SHORT_WORD for word in _WORD.findall(value))
    return is_made_up(value) or short_words > _MOST_SHORT_WORDS


def is_real_password(password: str) -> bool:
    """Whether the password in a URL is real and not a placeholder."""
    return not _PLACEHOLDER.fullmatch(password) and not _NOT_LITERAL & set(password) and len(set(password.lower())) > 1


def is_real_passphrase(value: str) -> bool:
    """Whether the value of a setting is a password: letters with digits, and not a placeholder."""
    has_both = any(char.isalpha() for char in value) and any(char.isdigit() for char in value)
    return has_both and not _NUMBERED_NAME.fullmatch(value) and len(set(value.lower())) >= _FEWEST_CHARACTERS


def is_basic_credentials(encoded: str) -> bool:
    """Whether it decodes to a user and a password, as in HTTP basic authentication."""
    try:
        text = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode("utf-8")
    except ValueError:
        return False
    user, colon, password = text.partition(":")
    return bool(user and colon) and text.isprintable() and is_real_password(password)


def is_real_host(host: str) -> bool:
    """Whether a host can exist. Examples use reserved names."""
    return not _EXAMPLE_HOST.fullmatch(host)


GROUP_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "value": is_made_up,
    "scrambled": is_scrambled,
    "password": is_real_password,
    "host": is_real_host,
    "passphrase": is_real_passphrase,
    "basic": is_basic_credentials,
}
"""The check for each group name. The match counts only if the check passes."""
