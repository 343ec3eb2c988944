"""Applies manifests through the API, so that a test needs no kubectl to prepare its cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from devcluster.control_plane.client import ApiError

Request = Callable[..., Any]
Manifest = Mapping[str, Any]

APPLY = "application/apply-patch+yaml"
DEFAULT_NAMESPACE = "default"
WAIT_SECONDS = 30.0
INTERVAL_SECONDS = 0.02
DEFINITION = "CustomResourceDefinition"


def read_manifests(path: Path) -> list[dict[str, Any]]:
    """Give the objects of a YAML file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def apply(request: Request, manifests: Iterable[Manifest]) -> None:
    """Apply objects in order, and wait until new custom resources can be created.

    Raises: ApiError when the server refuses one.
    """
    for manifest in manifests:
        path = f"{_collection(request, manifest)}/{manifest['metadata']['name']}"
        options = "?fieldManager=devcluster&force=true&fieldValidation=Strict"
        request("PATCH", path + options, manifest, content_type=APPLY)
        if manifest["kind"] == DEFINITION:
            _await_served(request, manifest["spec"])


def _collection(request: Request, manifest: Manifest) -> str:
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    resource = next(
        each
        for each in request("GET", root)["resources"]
        if each["kind"] == manifest["kind"] and "/" not in each["name"]
    )
    namespace = manifest["metadata"].get("namespace", DEFAULT_NAMESPACE)
    middle = f"namespaces/{namespace}/" if resource["namespaced"] else ""
    return f"{root}/{middle}{resource['name']}"


def _await_served(request: Request, spec: Manifest) -> None:
    """Wait until each version can be listed: Established comes a moment before that."""
    # In one namespace: in another one a test may have an object that is nested too deeply to be read here.
    where = f"namespaces/{DEFAULT_NAMESPACE}/" if spec["scope"] == "Namespaced" else ""
    for version in spec["versions"]:
        if version["served"]:
            root = f"/apis/{spec['group']}/{version['name']}"
            await_found(request, f"{root}/{where}{spec['names']['plural']}?limit=1")


def await_found(request: Request, path: str) -> None:
    """Wait until something can be read.

    Raises: ApiError when it cannot in time.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            request("GET", path)
        except ApiError as error:
            # A kind that is being set up answers 429 for a moment.
            if error.code not in (404, 429) or time.monotonic() > deadline:
                raise
            time.sleep(INTERVAL_SECONDS)
        else:
            return
