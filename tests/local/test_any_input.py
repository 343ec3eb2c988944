"""Whatever a job file or a Dockerfile says: read, or refused with one sentence a mistake, and soon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from paddlejob.client import manifest
from paddlejob.client.errors import ClientError
from paddlejob.local.errors import InputError
from paddlejob.local.input import dockerfile, documents, images
from simkube.build import job
from tests.support.fuzz import TEXT, changed, encodable, mangled, refusal

JOB = job().ps(1).worker(2).spec(cleanPodPolicy="Always", intranet="Service").manifest
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="}}
ALL = [JOB, CONFIG, SECRET]
BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
)
REPEATED_KEYS = "? [a, b]\n: 1\n? {a: 1}\n: 2\n"
FILES = (
    mangled(yaml.safe_dump_all(ALL), json.dumps({"kind": "List", "items": ALL}))
    | st.tuples(changed(JOB), changed(CONFIG), changed(SECRET)).map(
        lambda made: "\n---\n".join(json.dumps(each) for each in made)
    )
    | TEXT
)


@given(text=FILES)
@example(text=BOMB)
@example(text="a: &a [*a]")
@example(text=REPEATED_KEYS)
@example(text="!!python/object:os.system a")
@example(text="a: !!binary x\nb: !!set {a}\nc: !!omap [a: 1]\nd: 2001-99-99\ne: 0o9\nf: 1:99999:9")
@example(text="x: " + "9" * 5000)
@example(text=f"{yaml.safe_dump(JOB)}---\n{yaml.safe_dump(CONFIG)}".replace("data:", "data: &a\n  x: *a"))
def test_any_job_file_is_read_or_refused(text: str):
    def submit() -> None:
        jobs, _ = manifest.read(text, "the file")
        for each in jobs:
            if not manifest.problems(each):
                manifest.dump([manifest.override(each, manifest.Overrides(workers=1, image="i"))])

    refusal(lambda: documents.read(text), InputError)
    refusal(submit, ClientError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


REGISTRY = {"images": {"registry.example.com/demo:v1": "demo", "other": "../other"}}


@given(
    text=mangled(yaml.safe_dump(REGISTRY)).map(encodable) | changed(REGISTRY).map(json.dumps).map(str.encode)
)
@example(text=b"a: \xff")
@example(text=b"[" * 3000)
@example(text=b'a: "\\0"')
@example(text=b"a: 2001-99-99")
def test_any_registry_of_images_is_read_or_refused(folder: Path, text: bytes):
    (folder / images.REGISTRY).write_bytes(text)
    refusal(lambda: images.collect((), folder), InputError)


DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG VERSION=3.11
FROM --platform=linux/amd64 python:${VERSION:-3}-slim AS base
ENV A=1 B="two words" C=$A
ENV OLD style
WORKDIR /app/$A
COPY --chown=1:1 a b ./
COPY --from=base ["x y", "/z"]
RUN <<EOF
pip install paddlepaddle
EOF
ADD https://example.com/x /x
SHELL ["/bin/bash", "-c"]
ENTRYPOINT ["python", "-u"]
CMD python \\
    train.py
FROM base
CMD ["train.py"]
"""


@given(text=mangled(DOCKERFILE) | TEXT)
@example(text='FROM a\nENV A="')
@example(text="FROM a\nARG A='")
@example(text="ARG 'A\nFROM a")
@example(text='FROM a\nCOPY "a b')
@example(text="FROM a\nCMD " + "[" * 100_000)
@example(text="FROM a\nRUN <<A <<B <<C\n")
@example(text="FROM a\nENV A=x\n" + "ENV A=$A$A$A$A\n" * 40)
@example(text="FROM a\nENV A=" + "$" * 5000)
@example(text="\\\n" * 20_000)
def test_any_dockerfile_is_read_or_refused(text: str):
    refusal(lambda: dockerfile.parse(text), ValueError)
