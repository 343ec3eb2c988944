"""One container: how it starts, what it sees, how it ends and that nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from local.processes import fresh_mark, marked
from paddlejob.local.pod.process import ContainerProcess, StartError
from tests.support.waiting import eventually, eventually_async

FORKS_OF_ALL_KINDS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def stay():
    while True:
        time.sleep(60)
if os.fork() == 0:
    stay()                      # a plain child
if os.fork() == 0:
    os.setsid()                 # a session of its own
    stay()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:          # a daemon: its parent is gone
        stay()
    os._exit(0)
print("ready", flush=True)
stay()
"""
FORKED = 4

SAVES_WHEN_ITS_SHELL_HAS_ENDED = """
import os, signal, sys, time
shell = os.getppid()
def save(*_):
    while os.getppid() == shell:
        time.sleep(0.01)
    sys.exit(print("saved"))
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
signal.pause()
"""

ENDS_ITS_READER_ON_SIGTERM = """
import signal, subprocess
reader = subprocess.Popen("cat", stdin=subprocess.PIPE)
signal.signal(signal.SIGTERM, lambda *_: reader.stdin.close())
print("up", flush=True)
print("the reader ended with", reader.wait())
"""


@pytest.fixture
def spec(tmp_path, isolation):
    def build(*argv, mark="", cwd="/", mounts=()):
        return {
            "argv": list(argv),
            "env": {"PATH": os.environ["PATH"], "MARK": mark},
            "cwd": cwd,
            "log": str(tmp_path / "log"),
            "isolation": isolation,
            "hostname": "job-worker-0",
            "mounts": list(mounts),
        }

    return build


@pytest.fixture(params=["full", "mounts", "none"])
def isolation(request):
    return request.param


@pytest.fixture
def log(tmp_path):
    return (tmp_path / "log").read_text


ENDINGS = {
    "success is 0": ("exit 0", 0),
    "an exit code is kept": ("exit 3", 3),
    "signal 9 is 137": ("kill -9 $$", 137),
    "signal 11 is 139": ("kill -11 $$", 139),
    "SIGTERM is 143": ("kill -15 $$", 143),
}


@pytest.mark.parametrize(("script", "code"), ENDINGS.values(), ids=ENDINGS)
async def test_exit_codes_match_container_runtimes(spec, script, code):
    process = await ContainerProcess.start(spec("sh", "-c", script))
    assert await process.wait() == code


REFUSALS = {
    "a program that does not exist": (("no-such-program",), {}, "no-such-program"),
    "a program that is a directory": (("/etc",), {}, "/etc"),
    "a working directory that does not exist": (
        ("true",),
        {"cwd": "/no/such/directory"},
        "/no/such/directory",
    ),
}


@pytest.mark.parametrize(("argv", "options", "named"), REFUSALS.values(), ids=REFUSALS)
async def test_start_errors_name_the_cause(spec, argv, options, named):
    with pytest.raises(StartError, match=named):
        await ContainerProcess.start(spec(*argv, **options))


async def test_output_and_errors_go_to_the_log_in_order(spec, log):
    process = await ContainerProcess.start(spec("sh", "-c", "echo one; echo two >&2; printf three"))
    await process.wait()
    assert log() == "one\ntwo\nthree"


async def test_a_program_may_reopen_its_output_without_losing_the_log(spec, log):
    process = await ContainerProcess.start(spec("sh", "-c", "echo one; echo two > /dev/stdout; echo three"))
    await process.wait()
    assert log() == "one\ntwo\nthree\n"


async def test_a_second_start_continues_the_log(spec, log):
    for word in ("first", "second"):
        await (await ContainerProcess.start(spec("echo", word))).wait()
    assert log() == "first\nsecond\n"


async def test_the_program_has_no_input_and_no_foreign_descriptors(spec, log):
    process = await ContainerProcess.start(spec("sh", "-c", "cat; ls /proc/self/fd | wc -l"))
    await process.wait()
    assert log().strip() == "4"


async def test_ignored_signals_are_not_inherited(spec, log):
    process = await ContainerProcess.start(spec("grep", "SigIgn", "/proc/self/status"))
    await process.wait()
    # Signals 32 and 33 are the C library's own: no program can set them, whoever set them before.
    reserved = 1 << 31 | 1 << 32
    assert int(log().split()[1], 16) & ~reserved == 0


async def test_the_reported_pid_is_the_programs_own(spec, log):
    mark = fresh_mark()
    process = await ContainerProcess.start(spec("sleep", "60", mark=mark))
    assert marked(mark) == {process.pid}
    process.kill()
    await process.wait()


async def test_terminate_reaches_the_children_of_a_shell(spec, log):
    process = await ContainerProcess.start(
        spec("sh", "-c", f"{sys.executable} -c '{SAVES_WHEN_ITS_SHELL_HAS_ENDED}' & wait")
    )
    await eventually_async(lambda: "up" in log())
    process.terminate()
    assert await process.wait() == 143
    assert "saved" in log()


async def test_terminate_does_not_signal_children_of_a_program(spec, log):
    process = await ContainerProcess.start(spec(sys.executable, "-c", ENDS_ITS_READER_ON_SIGTERM))
    await eventually_async(lambda: "up" in log())
    process.terminate()
    assert await process.wait() == 0
    assert "the reader ended with 0" in log()


async def test_children_of_a_terminated_program_do_not_survive(spec, log):
    script = "trap 'exit 7' TERM; sh -c 'trap \"\" TERM; sleep 60' & echo up; while :; do sleep 0.05; done"
    process = await ContainerProcess.start(spec("sh", "-c", script))
    await eventually_async(lambda: "up" in log())
    process.terminate()
    assert await process.wait() == 7


async def test_kill_ends_detached_processes(spec, log):
    mark = fresh_mark()
    process = await ContainerProcess.start(spec(sys.executable, "-c", FORKS_OF_ALL_KINDS, mark=mark))
    await eventually_async(lambda: "ready" in log() and len(marked(mark)) == FORKED)
    process.terminate()
    process.kill()
    assert await process.wait() == 137
    assert not marked(mark)


async def test_background_children_end_with_the_program(spec):
    mark = fresh_mark()
    process = await ContainerProcess.start(spec("sh", "-c", "setsid sleep 60 & sleep 60 & exit 0", mark=mark))
    assert await process.wait() == 0
    assert not marked(mark)


RUNNER = """
import asyncio, json, sys
from paddlejob.local.pod.process import ContainerProcess
async def main():
    process = await ContainerProcess.start(json.loads(sys.argv[1]))
    print("started", flush=True)
    await process.wait()
asyncio.run(main())
"""


def test_no_process_survives_a_killed_runner(spec, log):
    mark = fresh_mark()
    description = json.dumps(spec(sys.executable, "-c", FORKS_OF_ALL_KINDS, mark=mark))
    with subprocess.Popen([sys.executable, "-c", RUNNER, description]) as runner:
        eventually(lambda: len(marked(mark)) == FORKED)
        runner.send_signal(signal.SIGKILL)
    eventually(lambda: not marked(mark))


async def test_a_killed_supervisor_is_a_killed_container(spec):
    mark = fresh_mark()
    process = await ContainerProcess.start(spec("sleep", "60", mark=mark))
    os.kill(process._supervisor.pid, signal.SIGKILL)
    assert await process.wait() == 137
    await eventually_async(lambda: not marked(mark))


async def test_a_cancelled_start_leaves_no_process(spec):
    mark = fresh_mark()
    starting = asyncio.ensure_future(ContainerProcess.start(spec("sleep", "60", mark=mark)))
    await asyncio.sleep(0)
    starting.cancel()
    await eventually_async(starting.done)
    assert not marked(mark)


async def test_a_full_disk_does_not_stop_the_program(spec, tmp_path):
    (tmp_path / "log").symlink_to("/dev/full")
    process = await ContainerProcess.start(spec("sh", "-c", "head -c 3000000 /dev/zero; exit 5"))
    assert await process.wait() == 5
    assert "No space left" in process.log_error


class TestMounts:
    """What a container with its own mounts sees."""

    @pytest.fixture(params=["full", "mounts"])
    def isolation(self, request):
        return request.param

    @pytest.fixture
    def volume(self, tmp_path):
        directory = tmp_path / "volume"
        directory.mkdir()
        (directory / "file").write_text("content\n")
        return directory

    @pytest.fixture
    def output(self, spec, log):
        async def run(script, *mounts, cwd="/"):
            process = await ContainerProcess.start(spec("sh", "-c", script, cwd=cwd, mounts=mounts))
            await process.wait()
            return log()

        return run

    @pytest.mark.parametrize(
        "target", ["/mnt", "/no-such-root/deep", "/usr/no-such/deep", "/etc/nested/x"], ids=str
    )
    async def test_a_volume_is_at_its_path_whether_that_exists_or_not(self, output, volume, target):
        existed = Path(target).exists()
        shown = await output("cat file; ls /usr/bin/env", _bind(volume, target), cwd=target)
        assert shown == "content\n/usr/bin/env\n"
        assert Path(target).exists() == existed

    async def test_volumes_may_be_inside_each_other_in_any_order(self, output, volume, tmp_path):
        inner = tmp_path / "inner"
        inner.mkdir()
        (inner / "deep").write_text("deep\n")
        mounts = (_bind(inner, "/outer/a/b"), _bind(volume, "/outer"))
        assert await output("cat /outer/file /outer/a/b/deep", *mounts) == "content\ndeep\n"

    async def test_a_volume_may_cover_the_source_of_another(self, output, volume, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        mounts = (_bind(other, str(tmp_path)), _bind(volume, "/seen"))
        assert await output("cat /seen/file", *mounts) == "content\n"

    async def test_a_file_can_be_mounted_on_its_own(self, output, volume):
        mount = _bind(volume / "file", "/etc/hosts")
        assert await output("cat /etc/hosts", mount) == "content\n"

    async def test_read_only_mounts_cannot_be_written(self, output, volume):
        shown = await output("touch /data/new || echo refused", _bind(volume, "/data", read_only=True))
        assert shown.endswith("refused\n")
        assert not (volume / "new").exists()

    async def test_writes_go_to_the_volume(self, output, volume):
        await output("echo news > /data/new", _bind(volume, "/data"))
        assert (volume / "new").read_text() == "news\n"

    async def test_an_overlay_does_not_change_its_lower_directory(self, output, volume, tmp_path):
        upper, work = tmp_path / "upper", tmp_path / "work"
        upper.mkdir()
        work.mkdir()
        mount = {
            "kind": "overlay",
            "lower": [str(volume)],
            "upper": str(upper),
            "work": str(work),
            "target": "/image",
        }
        assert await output("echo changed > /image/file; cat /image/file", mount) == "changed\n"
        assert (volume / "file").read_text() == "content\n"
        assert (upper / "file").read_text() == "changed\n"

    async def test_the_pod_has_its_own_hostname(self, output):
        assert await output("hostname") == "job-worker-0\n"
        assert os.uname().nodename != "job-worker-0"

    async def test_the_programs_own_processes_are_visible_in_proc(self, output):
        assert await output("cat /proc/$$/comm") == "sh\n"

    def test_root_is_not_needed(self, spec, volume, tmp_path, log):
        description = spec(
            "sh",
            "-c",
            "cat /no-such-root/file; id -u; touch /no-such-root/new; hostname",
            mounts=[_bind(volume, "/no-such-root")],
        )
        without_power = ["setpriv", "--bounding-set=-sys_admin"] if os.geteuid() == 0 else []
        subprocess.run([*without_power, sys.executable, "-c", RUNNER, json.dumps(description)], check=True)
        assert log() == f"content\n{os.geteuid()}\njob-worker-0\n"
        assert (volume / "new").exists()


def _bind(source, target, *, read_only=False):
    return {"kind": "bind", "source": str(source), "target": target, "read_only": read_only}
