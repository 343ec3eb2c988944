"""`init`: write a small job file for a program, or an example."""

from __future__ import annotations

import re
from pathlib import Path

import click

from paddlejob import bundle
from paddlejob.cli import shared
from paddlejob.client.errors import ClientError

MODES = {"single": (0, 1), "collective": (0, 2), "ps": (2, 2)}
"""Number of servers and workers."""
EXAMPLES = {"wide_and_deep": "2.6.2", "resnet": "3.3.1"}
"""Examples that have an image, and their version of PaddlePaddle."""
_HEAD = """\
# paddlejob run {file}         on this machine
# kubectl create -f {file}     on a cluster, with an image that contains {program}
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: {name}
spec:
"""
_ROLE = """\
  {role}:
    replicas: {replicas}
    template:
      spec:
        containers:
          - name: paddle
            image: {image}
            command: [python, {program}]
"""


@click.command("init")
@click.argument("mode", type=click.Choice(list(MODES)), default="single")
@click.option("--program", default="train.py", show_default=True, help="Program to run.")
@click.option("--name", default="", help="Name of the job. Default: that of this directory.")
@click.option("--image", default="paddlepaddle/paddle:2.6.2", show_default=True, help="Image for a cluster.")
@click.option(
    "--file", "-f", "file", type=click.Path(path_type=Path), default=Path("job.yaml"), show_default=True
)
@click.option(
    "--example", type=click.Choice(list(EXAMPLES)), help="Write an example to a folder of this name instead."
)
def command(mode: str, program: str, name: str, image: str, file: Path, example: str | None) -> None:
    """Write a job file: one worker, `collective` with two, or `ps` with two parameter servers."""
    if example:
        with shared.errors_shown():
            _write_example(example, Path(example))
        return
    servers, workers = MODES[mode]
    roles = {role: count for role, count in (("ps", servers), ("worker", workers)) if count}
    text = _HEAD.format(file=file, program=program, name=name or _name(Path.cwd()))
    for role, replicas in roles.items():
        text += _ROLE.format(role=role, replicas=replicas, image=image, program=program)
    with shared.errors_shown():
        _write(file, text)
    click.echo(f"wrote {file}; run it: paddlejob run {file}")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x") as opened:
            opened.write(text)
    except FileExistsError:
        raise ClientError(f"{file} exists; choose another with --file") from None
    except OSError as error:
        raise ClientError(f"cannot write {file}: {error.strerror}") from error


def _write_example(name: str, folder: Path) -> None:
    """Write the programs of an example, and an images.yaml that uses them for its image."""
    examples, paddle = bundle.folder(bundle.EXAMPLES), EXAMPLES[name]
    try:
        bundle.write(examples.joinpath(name), folder)
        bundle.write(examples.joinpath(f"constraints-paddle-{paddle}.txt"), folder / "requirements.txt")
        (folder / "images.yaml").write_text(_images(examples.joinpath("images.yaml").read_text(), name))
    except FileExistsError:
        raise ClientError(f"{folder} exists; remove it, or run this elsewhere") from None
    except OSError as error:
        raise ClientError(f"cannot write {folder}: {error.strerror}") from error
    click.echo(
        f"wrote {folder}; run it:\n"
        f"  cd {folder}\n"
        f"  python3 -m venv paddle && paddle/bin/pip install -r requirements.txt   # PaddlePaddle {paddle}\n"
        f"  python3 prepare_data.py\n"
        f"  paddlejob run {name}.yaml --python paddle/bin/python"
    )


def _images(registry: str, name: str) -> str:
    """Return an images.yaml that maps the images of an example to its own folder."""
    images = re.findall(rf"^  (\S+): {name}$", registry, re.MULTILINE)
    return "images:\n" + "".join(f"  {image}: .\n" for image in images)


def _name(directory: Path) -> str:
    """Return the name of the directory as a valid name in Kubernetes."""
    return re.sub(r"[^a-z0-9]+", "-", directory.name.lower()).strip("-")[:40].strip("-") or "job"
