"""Objects as the text of a YAML file that a person likes to read."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from paddlejob.api.meta import JsonObject


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, and nothing as a reference to something above."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


_FIRST = ("apiVersion", "kind", "metadata")


def dump(documents: Iterable[JsonObject]) -> str:
    """Return a file with these objects."""
    ordered = ({**{key: each[key] for key in _FIRST if key in each}, **each} for each in documents)
    return yaml.dump_all(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
