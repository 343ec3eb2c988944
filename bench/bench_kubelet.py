"""A simulated kubelet as a separate process, so that the operator's CPU time does not include it."""

from __future__ import annotations

import asyncio
import sys

from paddlejob.api.meta import JsonObject
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import Exit, Outcome, RunForever


def fate(pod: JsonObject, *_: object) -> Outcome:
    """Jobs of the churn end immediately; all others run until they are deleted."""
    return Exit(0, 0.1) if pod["metadata"]["name"].startswith("churn-") else RunForever()


async def main(kubeconfig: str) -> None:
    async with Client(HttpTransport(load_config(kubeconfig))) as client:
        kubelet = Kubelet(
            client,
            behaviour=fate,
            nodes=100,
            label_selector="paddle-res-type",
            fast=True,
        )
        await kubelet.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
