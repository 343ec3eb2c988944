"""The page of one job as a single HTML file: the components of the dashboard with the data inside.

The file needs no server and no network. Its content security policy allows one script, by its hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import posixpath
import re
from typing import Any

import msgspec

from paddlejob.dashboard.rows import STATIC, record_of
from paddlejob.history.record import Record

ENTRY = "standalone.js"
STYLES = ("vendor/uPlot.css", "style.css")
_COMMENTS = re.compile(r"^/\*\n(?:.*\n)*?\*/\n|^\s*//.*\n", re.MULTILINE)
_IMPORT = re.compile(r'^import\s*(\w+|\{[^}]*\})\s*from\s*"([^"]+)";?', re.MULTILINE)
_EXPORT_LIST = re.compile(r"export\s*\{([^}]*)\};?\s*$", re.MULTILINE)
_EXPORT_DEFAULT = re.compile(r"export default function\b")
_EXPORT = re.compile(r"^export ((?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src {script_hash}; style-src {style_hash}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style></head>
<body><main id="main"><noscript><pre>{text}</pre></noscript></main>
<script id="data" type="application/json">{data}</script>
<script>{script}</script></body></html>
"""


def record_page(record: Record) -> str:
    """Return the page of a record. Without JavaScript it shows the failure and the last lines as text."""
    summary = record.summary
    last = [rank.text for attempt in record.attempts[-1:] for rank in attempt.ranks[:1]]
    text = "\n\n".join(filter(None, (f"{summary.name}: {summary.result}", summary.message, *last)))
    return page(f"{summary.name}: {summary.result}", text, {"record": record_of(record)})


def page(title: str, text: str, data: Any) -> str:
    """Return a page for the data of `standalone.js`, with `text` for readers without JavaScript."""
    encoded = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    script, style = _script(), _style()
    return _PAGE.format(
        script_hash=_hash(script),
        style_hash=_hash(style),
        title=html.escape(_printable(title)),
        style=style,
        text=html.escape("\n".join(map(_printable, text.splitlines()))),
        data=_printable(encoded),
        script=script,
    )


def _printable(line: str) -> str:
    """Remove control characters and those that change the direction of text."""
    return "".join(each for each in line if each.isprintable())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def _style() -> str:
    return "\n".join((STATIC / name).read_text() for name in STYLES)


@functools.cache
def _script() -> str:
    """Return the modules of the page as one script: browsers do not import modules from a file:// page."""
    modules: dict[str, str] = {}
    _add_module(ENTRY, modules)
    return "\n".join(("(() => {", '"use strict";', "const modules = {};", *modules.values(), "})();"))


def _add_module(path: str, modules: dict[str, str]) -> None:
    """Add a module after the modules that it imports, as a function that returns its exports."""
    if path in modules:
        return
    exports: list[str] = []

    def bind(found: re.Match[str]) -> str:
        imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2]))
        _add_module(imported, modules)
        names = found[1].replace(" as ", ": ") if found[1].startswith("{") else f"{{ default: {found[1]} }}"
        return f'const {names} = modules["{imported}"];'

    def list_exports(found: re.Match[str]) -> str:
        pairs = (each.split(" as ") for each in found[1].split(",") if each.strip())
        exports.extend(f"{pair[-1].strip()}: {pair[0].strip()}" for pair in pairs)
        return ""

    def export(found: re.Match[str]) -> str:
        exports.append(found[2])
        return found[1]

    source = _IMPORT.sub(bind, _COMMENTS.sub("", (STATIC / path).read_text()))
    source = _EXPORT.sub(export, _EXPORT_LIST.sub(list_exports, source))
    source, defaults = _EXPORT_DEFAULT.subn("const defaultExport = function", source)
    exports += ["default: defaultExport"] * defaults
    modules[path] = f'modules["{path}"] = (() => {{\n{source}\nreturn {{ {", ".join(exports)} }};\n}})();'
