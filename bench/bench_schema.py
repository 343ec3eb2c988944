"""The cost of each part of our CRD for the API server: variants of its schema on one server.

    PYTHONPATH=. python bench/bench_schema.py [--count 150] [--rounds 5] [--variables 8] [--only NAME]

Every variant is a separate resource with the same jobs. Their requests alternate, so that other load affects
all of them. A pod's status is measured for comparison. Figures are the API server's processor time for one
request.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import yaml
from load import create_pod, side_by_side, submission
from process import ROOT, Meter

from devcluster import ControlPlane
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Snapshot
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS, Resource
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job

Schema = dict[str, Any]

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
BOUNDS = {"minimum", "maximum", "minLength", "maxLength", "maxItems", "maxProperties", "pattern", "enum"}
LIST_TYPES = {"x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
ROLES = ("ps", "worker", "heter")


def without(keys: set[str]) -> Callable[[Schema], None]:
    """Return a function that removes keywords from a schema."""

    def remove(node: Any) -> None:
        if isinstance(node, dict):
            for key in keys & node.keys():
                # `properties` may have a field of that name.
                if not isinstance(node[key], dict) or "type" not in node[key]:
                    del node[key]
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            remove(child)

    return remove


def without_rules_of(*path: str) -> Callable[[Schema], None]:
    """Return a function that removes the rules at one path; `*` matches each role."""

    def remove(schema: Schema) -> None:
        nodes = [schema]
        for part in path:
            names = ROLES if part == "*" else (part,)
            nodes = [node["properties"][name] for node in nodes for name in names]
        for node in nodes:
            del node["x-kubernetes-validations"]

    return remove


def search_each_name(schema: Schema) -> None:
    """Look for each protected variable among all of a container's, instead of the other way round."""
    for role in ROLES:
        rule = schema["properties"]["spec"]["properties"][role]["properties"]["template"]["properties"][
            "spec"
        ]
        protected = rule["x-kubernetes-validations"][0]
        before, names = protected["rule"].split(".exists(v, v.name in ")
        env = before.rpartition("!")[2]
        protected["rule"] = f"!has({env}) || !{names[:-1]}.exists(name, {env}.exists(v, v.name == name))"


def open_templates(schema: Schema) -> None:
    for role in ROLES:
        schema["properties"]["spec"]["properties"][role]["properties"]["template"] = ANYTHING


def open_status(schema: Schema) -> None:
    schema["properties"]["status"] = ANYTHING


def open_spec(schema: Schema) -> None:
    schema["properties"]["spec"] = ANYTHING
    del schema["x-kubernetes-validations"]  # which are about the spec


def open_all(schema: Schema) -> None:
    schema.clear()
    schema |= ANYTHING


VARIANTS: dict[str, Callable[[Schema], None]] = {
    "as shipped": lambda _: None,
    "protected variables one by one": search_each_name,
    "without CEL rules": without({"x-kubernetes-validations"}),
    "  of pods": without_rules_of("spec", "*", "template", "spec"),
    "  of roles": without_rules_of("spec", "*"),
    "  of the spec": without_rules_of("spec"),
    "  of the name": without_rules_of(),
    "without list maps": without(LIST_TYPES),
    # Without bounds the server refuses the rules: they could cost too much.
    "without CEL rules and bounds": without({"x-kubernetes-validations", *BOUNDS}),
    "without descriptions": without({"description"}),
    "without defaults": without({"default"}),
    "templates of any shape": open_templates,
    "a status of any shape": open_status,
    "a spec of any shape": open_spec,
    "no schema at all": open_all,
}


class Variant:
    """A variant of the definition, as a separate resource."""

    def __init__(self, client: Client, number: int, thin: Callable[[Schema], None], variables: int) -> None:
        self.definition = yaml.safe_load((ROOT / "deploy/v1/crd.yaml").read_text())
        group = f"variant{number}.example.org"
        self.definition["metadata"] = {"name": f"paddlejobs.{group}"}
        self.definition["spec"]["group"] = group
        thin(self.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        self._resource = Resource(group, "v1", "paddlejobs", "PaddleJob")
        self._client = client
        self._status = _running_status()
        self._env = [{"name": f"VARIABLE_{each}", "value": str(each)} for each in range(variables)]

    async def create(self, number: int) -> None:
        body = submission(job(f"job-{number}").ps(2, env=self._env).worker(2, env=self._env))
        body["apiVersion"] = self._resource.api_version
        await self._client.create(self._resource, "default", body)

    async def write_status(self, number: int, text: str) -> None:
        patch = {"status": {**self._status, "message": text}}
        await self._client.patch(self._resource, "default", f"job-{number}", patch, subresource="status")


def _running_status() -> dict[str, Any]:
    """Return the status that the operator writes first."""
    built = msgspec.convert(copy.deepcopy(job().ps(2).worker(2).manifest), PaddleJob)
    return msgspec.to_builtins(plan(Snapshot(built, datetime.now(UTC))).status)


async def measure(plane: ControlPlane, options: argparse.Namespace) -> None:
    count, chosen = options.count, options.only or VARIANTS
    meter = Meter()
    async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
        variants = {
            name: Variant(client, number, VARIANTS[name], options.variables)
            for number, name in enumerate(chosen)
        }
        for variant in variants.values():
            plane.apply(variant.definition)

        async def cost(request: Callable[[int], Awaitable[None]]) -> float:
            before = meter.read()["kube-apiserver"]
            await side_by_side(range(count), request)
            return 1000 * (meter.read()["kube-apiserver"] - before) / count

        creations = {name: await cost(variant.create) for name, variant in variants.items()}
        creations["a pod"] = await cost(lambda number: create_pod(client, f"pod-{number}"))
        patches: dict[str, list[float]] = {name: [] for name in creations}
        for turn in range(options.rounds):
            text = f"turn {turn}"
            for name, variant in variants.items():
                patches[name].append(await cost(lambda number: variant.write_status(number, text)))  # noqa: B023

            async def write_pod_status(number: int) -> None:
                patch = {"status": {"phase": "Running", "message": text}}  # noqa: B023
                await client.patch(PODS, "default", f"pod-{number}", patch, subresource="status")

            patches["a pod"].append(await cost(write_pod_status))
    _print(creations, patches)


def _print(creations: dict[str, float], patches: dict[str, list[float]]) -> None:
    print(f"  {'API server CPU':30}{'status patch':>14}{'least':>8}{'most':>8}{'creation':>10}")
    for name, figures in patches.items():
        middle = statistics.median(figures)
        print(
            f"  {name:30}{middle:11.2f} ms{min(figures):8.2f}{max(figures):8.2f}{creations[name]:10.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variables", type=int, default=8, help="in the environment of each role")
    parser.add_argument("--only", action="append", choices=VARIANTS, help="this variant, and others given so")
    options = parser.parse_args()
    with ControlPlane.start() as plane:
        asyncio.run(measure(plane, options))


if __name__ == "__main__":
    main()
