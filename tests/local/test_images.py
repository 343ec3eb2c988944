"""Which images a machine knows, and what a container of one sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.jobs import container, job, role
from paddlejob.local.errors import InputError
from paddlejob.local.input.dockerfile import Copy
from paddlejob.local.input.images import collect
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.pod.layers import HostPath, Layers, copied_paths
from paddlejob.local.runner import Ending

NAME = "registry.example/demo:v1"


@pytest.fixture
def image(directory):
    def build(dockerfile, **files):
        (directory / "Dockerfile").write_text(f"FROM scratch\n{dockerfile}\n")
        for name, content in files.items():
            path = directory / name.replace("__", "/").replace("_py", ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        return f"{NAME}={directory}"

    return build


def without_command(**fields):
    one = container("", image=NAME, **fields)
    del one["command"]
    return role(1, containers=[one])


def test_the_examples_registry_is_found_from_anywhere():
    known = collect((), Path.cwd())
    image = known.find("registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1")
    assert image.config.entrypoint == ("python3", "train.py")
    assert image.config.workdir == "/wide_and_deep"


def test_a_registry_beside_the_job_comes_before_others(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "Dockerfile").write_text('FROM x\nCMD ["mine"]\n')
    (tmp_path / "images.yaml").write_text("registry.baidubce.com/paddle-operator/demo-resnet:v1: mine\n")
    known = collect((), tmp_path)
    assert known.find("registry.baidubce.com/paddle-operator/demo-resnet:v1").config.command == ("mine",)


def test_an_option_comes_before_every_registry(image):
    known = collect((image('CMD ["chosen"]'),), Path.cwd())
    assert known.find(NAME).config.command == ("chosen",)


def test_images_based_on_each_other_are_read(tmp_path):
    for name, base in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Dockerfile").write_text(f'FROM {base}\nWORKDIR /{name}\nCMD ["{name}"]\n')
    (tmp_path / "images.yaml").write_text("a: a\nb: b\n")
    known = collect((), tmp_path)
    assert (known.find("a").config.command, known.find("b").config.workdir) == (("a",), "/b")


def test_an_unknown_image_is_not_found():
    assert collect((), Path.cwd()).find("unheard/of:v1") is None


BAD_OPTIONS = {"no directory": "image:v1", "an empty one": "image:v1=", "no image": "=dir"}


@pytest.mark.parametrize("option", BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_refused(option):
    with pytest.raises(InputError, match="write IMAGE=DIR"):
        collect((option,), Path.cwd())


def test_a_missing_dockerfile_is_named(tmp_path):
    with pytest.raises(InputError, match="Dockerfile, the Dockerfile of image a:v1: No such file"):
        collect((f"a:v1={tmp_path}",), Path.cwd()).find("a:v1")


def test_a_registry_must_be_a_mapping(tmp_path):
    (tmp_path / "images.yaml").write_text("- a\n")
    with pytest.raises(InputError, match="write one line per image"):
        collect((), tmp_path)


async def test_an_images_entrypoint_runs_in_its_directory(finish, image):
    option = image(
        'ADD code /app\nWORKDIR /app\nENV GREETING=hello\nENTRYPOINT ["sh", "main"]',
        code__main="pwd; echo $GREETING",
    )
    run = await finish(job(worker=without_command()), images=(option,))
    assert run.log("worker-0") == "/app\nhello\n"


async def test_arguments_replace_the_images_command_but_not_its_entrypoint(finish, image):
    option = image('ENTRYPOINT ["echo", "entry"]\nCMD ["default"]')
    run = await finish(job(worker=without_command(args=["given $(PADDLE_TRAINER_ID)"])), images=(option,))
    assert run.log("worker-0") == "entry given 0\n"


async def test_pods_write_to_private_copies(finish, image, directory):
    script = "echo $HOSTNAME > own; echo changed > code; cat own code"
    option = image(
        f"COPY code /app/\nWORKDIR /app\nCOPY data data\nCMD {script}", code="original\n", data__x="1"
    )
    run = await finish(job(worker={**without_command(), "replicas": 2}), images=(option,))
    assert run.log("worker-0") == "job-worker-0\nchanged\n"
    assert run.log("worker-1") == "job-worker-1\nchanged\n"
    assert (directory / "code").read_text() == "original\n"
    assert (run.directory.files("job-worker-1") / "main-0" / "app" / "own").read_text() == "job-worker-1\n"


LESSER = {
    "without overlays": Capabilities("full", can_overlay=False),
    "without own processes": Capabilities("mounts", can_overlay=True),
    "without either": Capabilities("mounts", can_overlay=False),
}


@pytest.mark.parametrize("lesser", LESSER.values(), ids=LESSER)
async def test_images_work_on_kernels_that_allow_less(finish, image, directory, lesser):
    option = image("ADD . /app\nWORKDIR /app\nCMD echo changed > code; pwd; cat code", code="original\n")
    run = await finish(job(worker=without_command()), images=(option,), allowed=lesser)
    assert run.log("worker-0") == "/app\nchanged\n"
    assert (directory / "code").read_text() == "original\n"


@pytest.mark.slow
async def test_a_restarted_container_begins_with_the_files_of_its_image(finish, image):
    option = image("COPY code /app/\nWORKDIR /app\nCMD ls; touch new; exit 1", code="x")
    worker = without_command()
    worker["template"]["spec"]["restartPolicy"] = "OnFailure"
    run = await finish(job(worker=worker, backoffLimit=1), images=(option,))
    assert await run.ended() is Ending.FAILED
    assert set(run.log("worker-0").split()) == {"code"}


async def test_an_unknown_image_works_beside_the_jobs_file(finish, tmp_path):
    (tmp_path / "train.sh").write_text("pwd; echo made > made\n")
    run = await finish(job(worker=role(1, "sh train.sh")))
    assert run.log("worker-0") == "/workspace\n"
    assert not (tmp_path / "made").exists()


async def test_python_is_the_chosen_interpreter(finish, tmp_path):
    chosen = tmp_path / "chosen"
    chosen.write_text('#!/bin/sh\necho "chosen $*"\n')
    chosen.chmod(0o755)
    run = await finish(job(worker=role(1, "python a; python3 b")), python=str(chosen))
    assert run.log("worker-0") == "chosen a\nchosen b\n"


async def test_an_unknown_interpreter_is_refused(start):
    with pytest.raises(InputError, match="--python no-such-python: no such program"):
        await start(job(), python="no-such-python")


async def test_a_container_without_a_known_program_is_refused(start):
    with pytest.raises(InputError, match=f"pass --image {NAME}=DIR"):
        await start(job(worker=without_command()))


async def test_an_image_without_a_program_is_refused(start, image):
    with pytest.raises(InputError, match="has neither ENTRYPOINT nor CMD"):
        await start(job(worker=without_command()), images=(image("WORKDIR /"),))


PLACES = {
    "a directory's contents": (Copy(("code",), "/app"), ["/app"]),
    "a file into a directory": (Copy(("a",), "/app/"), ["/app/a"]),
    "a file under another name": (Copy(("a",), "/app/b"), ["/app/b"]),
    "several files": (Copy(("a", "b"), "/app"), ["/app/a", "/app/b"]),
    "a pattern": (Copy(("[ab]",), "/app/"), ["/app/a", "/app/b"]),
    "into the root": (Copy(("code",), "/"), ["/inner"]),
    "nothing outside of the directory": (Copy(("../../etc",), "/app"), []),
}


@pytest.mark.parametrize(("copy", "targets"), PLACES.values(), ids=PLACES)
def test_copied_paths(directory, copy, targets):
    (directory / "code").mkdir()
    for name in ("a", "b", "code/inner"):
        (directory / name).write_text(name)
    assert [each.target for each in copied_paths(copy, directory)] == targets


def test_without_overlays_directories_are_copied(directory, tmp_path):
    (directory / "file").write_text("x")
    layers = Layers(tmp_path / "scratch", can_overlay=False)
    layers.add(HostPath(directory, "/app"))
    [mount] = layers.mounts()
    assert mount["kind"] == "bind"
    assert (Path(mount["source"]) / "file").read_text() == "x"
    assert layers.host_path("/app/deep") == f"{mount['source']}/deep"


def test_a_file_into_a_directory_of_this_machine_does_not_hide_the_others(directory, tmp_path):
    (directory / "tool").write_text("x")
    layers = Layers(tmp_path / "scratch", can_overlay=True)
    layers.add(HostPath(directory / "tool", "/usr/bin/tool"))
    assert [mount["target"] for mount in layers.mounts()] == ["/usr/bin/tool"]


async def test_a_misspelt_image_gets_a_suggestion(start, image):
    option = image("CMD true")
    worker = without_command()
    worker["template"]["spec"]["containers"][0]["image"] = NAME[:-1]
    with pytest.raises(InputError, match=f"did you mean {NAME}?"):
        await start(job(worker=worker), images=(option,))


async def test_an_image_that_no_container_uses_is_noted(finish, image):
    run = await finish(job(worker=role(1)), images=(image("CMD true"),))
    assert f"--image {NAME}: no container uses this image" in run.session.record.notes
