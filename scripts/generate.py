"""Write the files that are made from the types, or with --check say which of them are not current."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from paddlejob.api.crd.definition import crd_v1, crd_v1beta1
from paddlejob.api.meta import JsonObject

sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts import manifests
from scripts.api_reference import api_reference
from scripts.cli_reference import cli_reference

ROOT = Path(__file__).parent.parent
NOTICE = "Generated from src/paddlejob/api by scripts/generate.py. Do not edit; run `make generate`."
MANIFESTS_NOTICE = NOTICE.replace("src/paddlejob/api", "scripts/manifests.py")


class _PlainDumper(yaml.SafeDumper):
    """Writes every value in full: anchors and aliases are no part of a manifest that people read."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def manifest(document: JsonObject) -> str:
    """Return an object as YAML in the order in which it was written down."""
    text = yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True)
    return f"# {NOTICE}\n{text}"


def page(text: str) -> str:
    """Return a page of documentation with the notice, which Markdown does not show."""
    return f"<!-- {NOTICE} -->\n{text}"


def installation(install: manifests.Install) -> str:
    """Return what installs the operator as YAML."""
    return described(manifests.operator_objects(install))


def described(objects: list[JsonObject]) -> str:
    """Return objects as YAML with the notice."""
    return f"# {MANIFESTS_NOTICE}\n{manifests.documents(objects)}"


def template(text: str) -> str:
    """Return a template of the Helm chart with the notice, which rendering drops."""
    return f"{{{{- /* {MANIFESTS_NOTICE} */ -}}}}\n{text}"


GENERATED: list[tuple[str, Callable[[], str]]] = [
    ("deploy/v1/crd.yaml", lambda: manifest(crd_v1())),
    ("deploy/v1beta1/crd.yaml", lambda: manifest(crd_v1beta1())),
    ("deploy/v1/operator.yaml", lambda: installation(manifests.Install())),
    ("deploy/v1/operator-namespaced.yaml", lambda: installation(manifests.Install(namespaced=True))),
    ("deploy/v1/dashboard.yaml", lambda: described(manifests.dashboard_objects())),
    ("deploy/v1beta1/operator.yaml", lambda: installation(manifests.Install(old_cluster=True))),
    ("deploy/helm/paddlejob/templates/crd.yaml", lambda: template(manifests.chart_crd())),
    ("deploy/helm/paddlejob/templates/_rules.tpl", lambda: template(manifests.chart_rules())),
    ("docs/reference/api.md", lambda: page(api_reference())),
    ("docs/reference/api.zh-CN.md", lambda: page(api_reference(chinese=True))),
    ("docs/cli.md", lambda: page(cli_reference()).replace("src/paddlejob/api", "src/paddlejob/cli")),
    (
        "docs/cli.zh-CN.md",
        lambda: page(cli_reference(chinese=True)).replace("src/paddlejob/api", "src/paddlejob/cli"),
    ),
]


def stale_files(root: Path = ROOT) -> list[tuple[Path, str]]:
    """Return the files whose content is not what it should be, with what it should be."""
    made = ((root / name, make()) for name, make in GENERATED)
    return [(path, text) for path, text in made if not path.exists() or path.read_text() != text]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is not current")
    checking = parser.parse_args().check
    stale = stale_files()
    for path, text in stale:
        if not checking:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(f"{path.relative_to(ROOT)} {'is not current: run `make generate`' if checking else 'written'}")
    return 1 if checking and stale else 0


if __name__ == "__main__":
    sys.exit(main())
