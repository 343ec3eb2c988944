"""`paddlejob manifests`: what installs the operator on a cluster; the files are those of deploy/v1."""

from __future__ import annotations

import re
from importlib import resources

import click

FILES = ("crd.yaml", "operator.yaml")


@click.command("manifests")
@click.option("--image", default="", help="Image of the operator. Default: paddlejob-operator.")
@click.option("--namespace", "-n", default="", help="Namespace of the operator. Default: paddle-system.")
def command(image: str, namespace: str) -> None:
    """Print the CRD and the operator: paddlejob manifests --image IMAGE | kubectl apply --server-side -f -"""
    text = "---\n".join(resources.files(__package__).joinpath(name).read_text() for name in FILES)
    if namespace:
        text = re.sub(r"\bpaddle-system\b", namespace, text)
    if image:
        text = re.sub(r"^( +image:) paddlejob-operator\S*$", rf"\1 {image}", text, flags=re.MULTILINE)
    click.echo(text, nl=False)
