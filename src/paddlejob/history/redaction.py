"""Removes credentials from log lines and commands before they are kept or shown. Pure.

These are free text, so this finds only credentials with a recognizable form.
"""

from __future__ import annotations

import re

REDACTED = "(redacted)"

_NAMES = (
    r"(?:api[_-]?|access[_-]?|private[_-]?)?key|auth(?:orization)?|cookie|credentials?|dsn|pass(?:word|wd|phrase)|"
    r"pwd|secret|sig(?:nature)?|token"
)
_VALUE = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[^\s"'&]++)"""
_PATTERNS = (
    # The user name may be a token as well.
    (re.compile(r"(://)[^/@\s]++(?=@)"), rf"\g<1>{REDACTED}"),
    (re.compile(r"\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}+", re.IGNORECASE), rf"\g<1>{REDACTED}"),
    (re.compile(rf"""((?:{_NAMES})["']?[ \t]*+[=:][ \t]*+){_VALUE}""", re.IGNORECASE), rf"\g<1>{REDACTED}"),
    # The bounds keep the time linear.
    (
        re.compile(rf"((?<![\w-])--?[\w-]{{0,40}}?(?:{_NAMES})[ \t]{{1,8}}){_VALUE}", re.IGNORECASE),
        rf"\g<1>{REDACTED}",
    ),
    (re.compile(r"\beyJ[\w-]{8,}+\.[\w-]++\.[\w-]*+"), REDACTED),
    (re.compile(r"\b(?:gh[pousr]_|xox[abprs]-|hf_|AKIA|sk-)[\w-]{12,}+"), REDACTED),
)


def redact(text: str) -> str:
    """Return the text without passwords in URLs, named credentials and well-known token formats."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
