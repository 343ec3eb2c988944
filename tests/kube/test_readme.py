"""Runs the example of src/paddlejob/kube/README.md against an API server over HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from simkube.apiserver.server import ApiServer
from tests.support.served_api import Front

README = Path(__file__).parents[2] / "src/paddlejob/kube/README.md"


async def test_the_example_prints_the_documented_lines(tmp_path):
    text = README.read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    documented = re.search(r"It prints `(.*?)` and `(.*?)`", text)
    assert documented is not None
    front = Front(ApiServer())
    await front.start()
    try:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            f"clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{front.port}'}}}}]\n"
            "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
        )
        env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        example = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, env=env, stdout=PIPE, stderr=PIPE
        )
        output, errors = await asyncio.wait_for(example.communicate(), 60)
    finally:
        await front.stop()
    assert (example.returncode, errors.decode()) == (0, "")
    assert output.decode().splitlines() == list(documented.groups())
