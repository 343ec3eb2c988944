from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import pytest

from paddlejob.kube.errors import CredentialsError
from paddlejob.kube.transport.auth import (
    Credentials,
    FileAuthenticator,
    PluginAuthenticator,
    PluginCredentials,
    authenticator_for,
)
from paddlejob.kube.transport.cluster import ExecPlugin, User
from paddlejob.kube.transport.tls import ClientCertificate


class Time:
    """A clock that tests move by hand."""

    def __init__(self):
        self.seconds = 1000.0

    def clock(self):
        return self.seconds

    def now(self):
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


@pytest.fixture
def time():
    return Time()


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        pytest.param(User(), "", id="nobody"),
        pytest.param(User(token="t\n"), "Bearer t", id="a token"),
        pytest.param(
            User(username="u", password="p:w"),
            f"Basic {base64.b64encode(b'u:p:w').decode()}",
            id="a user and a password",
        ),
    ],
)
async def test_credentials_in_the_kubeconfig(user, authorization):
    authenticator = authenticator_for(user)
    assert await authenticator.credentials() == Credentials(authorization)
    assert not await authenticator.renew(Credentials(authorization))


async def test_a_certificate_of_bytes_and_of_a_file(tmp_path):
    (tmp_path / "key").write_bytes(b"key")
    identity = await authenticator_for(
        User(client_certificate=b"cert", client_key=tmp_path / "key")
    ).credentials()
    assert identity.client_certificate == ClientCertificate(b"cert", b"key")


@pytest.mark.parametrize("token", ["a\nb", "a\x00b", "ä"])
async def test_a_broken_token_is_not_sent(token):
    with pytest.raises(CredentialsError, match="invalid token"):
        await authenticator_for(User(token=token)).credentials()


def test_no_secret_in_a_representation():
    assert "hunter2" not in repr(Credentials("Bearer hunter2"))


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    return path


async def test_the_token_file_takes_precedence_over_the_token(token_file):
    assert (
        await authenticator_for(User(token="t", token_file=token_file)).credentials()
    ).authorization == "Bearer one"


async def test_a_file_is_read_again_after_a_minute(token_file, time):
    authenticator = FileAuthenticator(User(token_file=token_file), clock=time.clock)
    await authenticator.credentials()
    token_file.write_text("two")
    time.seconds += 59
    assert (await authenticator.credentials()).authorization == "Bearer one"
    time.seconds += 1
    assert (await authenticator.credentials()).authorization == "Bearer two"


async def test_a_file_is_read_again_when_the_server_refuses(token_file, time):
    authenticator = FileAuthenticator(User(token_file=token_file), clock=time.clock)
    rejected = await authenticator.credentials()
    assert not await authenticator.renew(rejected)
    token_file.write_text("two")
    assert await authenticator.renew(rejected)
    assert (await authenticator.credentials()).authorization == "Bearer two"


@pytest.mark.parametrize("replace", ["", None], ids=["emptied", "removed"])
async def test_a_file_being_replaced_does_no_harm(token_file, time, caplog, replace):
    authenticator = FileAuthenticator(User(token_file=token_file), clock=time.clock)
    rejected = await authenticator.credentials()
    token_file.unlink() if replace is None else token_file.write_text(replace)
    time.seconds += 60
    assert (await authenticator.credentials()).authorization == "Bearer one"
    assert not await authenticator.renew(rejected)
    assert "using the previous credentials" in caplog.text


@pytest.mark.parametrize(
    ("text", "sentence"), [(None, "unable to read .*token: No such file"), (" \n", "token is empty")]
)
async def test_a_file_that_never_was_of_use(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "token").write_text(text)
    with pytest.raises(CredentialsError, match=sentence):
        await authenticator_for(User(token_file=tmp_path / "token")).credentials()


class Plugin:
    """Gives token-1, token-2 and so on, or what it is told to."""

    def __init__(self, time):
        self.time = time
        self.runs = 0
        self.lifetime_seconds = None
        self.token = None
        self.failure = None
        self.certificate = None

    async def run(self):
        self.runs += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise CredentialsError(self.failure)
        token = f"token-{self.runs}" if self.token is None else self.token
        lifetime = self.lifetime_seconds
        expires_at = None if lifetime is None else self.time.now() + timedelta(seconds=lifetime)
        return PluginCredentials(token, self.certificate, expires_at)

    def authenticator(self, beside=None):
        files = FileAuthenticator(beside or User())
        return PluginAuthenticator(self.run, files, clock=self.time.clock, now=self.time.now)


@pytest.fixture
def plugin(time):
    return Plugin(time)


async def test_a_real_plugin_is_run(tmp_path):
    output = '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'
    plugin = ExecPlugin(api_version="client.authentication.k8s.io/v1", command="echo", args=(output,))
    assert (await authenticator_for(User(exec_plugin=plugin)).credentials()).authorization == "Bearer t"


async def test_the_clock_is_that_of_the_machine():
    runs = []

    async def run():
        runs.append(datetime.now(UTC) + timedelta(hours=1))
        return PluginCredentials("t", None, runs[-1])

    authenticator = PluginAuthenticator(run, FileAuthenticator(User()))
    assert await authenticator.credentials() == await authenticator.credentials() == Credentials("Bearer t")
    assert len(runs) == 1


async def test_a_plugin_runs_once_for_many_requests(plugin):
    authenticator = plugin.authenticator()
    identities = await asyncio.gather(*(authenticator.credentials() for _ in range(50)))
    assert set(identities) == {Credentials("Bearer token-1")}
    assert plugin.runs == 1


async def test_credentials_without_an_end_are_kept(plugin, time):
    authenticator = plugin.authenticator()
    await authenticator.credentials()
    time.seconds += 1e9
    assert (await authenticator.credentials()).authorization == "Bearer token-1"


@pytest.mark.parametrize(
    ("lifetime", "kept", "renewed"),
    [
        pytest.param(3600, 3539, 3540, id="an hour's, a minute before its end"),
        pytest.param(100, 79, 80, id="a short one's, after four fifths"),
    ],
)
async def test_renewed_before_the_end(plugin, time, lifetime, kept, renewed):
    plugin.lifetime_seconds = lifetime
    authenticator = plugin.authenticator()
    start = time.seconds
    await authenticator.credentials()
    time.seconds = start + kept
    assert (await authenticator.credentials()).authorization == "Bearer token-1"
    time.seconds = start + renewed
    identities = await asyncio.gather(*(authenticator.credentials() for _ in range(50)))
    assert set(identities) == {Credentials("Bearer token-2")}


async def test_expired_credentials_do_not_run_the_plugin_in_a_loop(plugin, time):
    plugin.lifetime_seconds = -10
    authenticator = plugin.authenticator()
    for _ in range(50):
        await authenticator.credentials()
    assert plugin.runs == 1
    time.seconds += 5
    await authenticator.credentials()
    assert plugin.runs == 2


async def test_concurrent_refusals_run_the_plugin_once(plugin, time):
    authenticator = plugin.authenticator()
    rejected = await authenticator.credentials()
    time.seconds += 5
    assert all(await asyncio.gather(*(authenticator.renew(rejected) for _ in range(50))))
    assert plugin.runs == 2
    assert (await authenticator.credentials()).authorization == "Bearer token-2"


async def test_a_late_refusal_of_an_old_token_makes_no_run(plugin, time):
    authenticator = plugin.authenticator()
    await authenticator.credentials()
    assert await authenticator.renew(Credentials("Bearer an-older-one"))
    assert plugin.runs == 1


async def test_the_same_token_again_is_no_reason_to_try(plugin, time):
    plugin.token = "same"
    authenticator = plugin.authenticator()
    rejected = await authenticator.credentials()
    time.seconds += 5
    assert not any(await asyncio.gather(*(authenticator.renew(rejected) for _ in range(50))))
    assert plugin.runs == 2


async def test_a_plugin_that_fails_is_not_run_by_every_request(plugin, time, caplog):
    plugin.failure = "log in first"
    authenticator = plugin.authenticator()
    results = await asyncio.gather(*(authenticator.credentials() for _ in range(50)), return_exceptions=True)
    assert {(type(result), str(result)) for result in results} == {(CredentialsError, "log in first")}
    assert plugin.runs == 1


async def test_a_plugin_that_works_again_is_found_out(plugin, time, caplog):
    plugin.failure = "log in first"
    authenticator = plugin.authenticator()
    with pytest.raises(CredentialsError):
        await authenticator.credentials()
    plugin.failure = None
    time.seconds += 5
    assert (await authenticator.credentials()).authorization == "Bearer token-2"


async def test_valid_credentials_outlive_a_failing_plugin(plugin, time, caplog):
    plugin.lifetime_seconds = 3600
    authenticator = plugin.authenticator()
    await authenticator.credentials()
    plugin.failure = "the network is down"
    time.seconds += 3550
    assert (await authenticator.credentials()).authorization == "Bearer token-1"
    assert "the network is down" in caplog.text
    time.seconds += 50
    with pytest.raises(CredentialsError, match="the network is down"):
        await authenticator.credentials()


async def test_a_failing_plugin_leaves_the_refusal_as_it_is(plugin, time, caplog):
    authenticator = plugin.authenticator()
    rejected = await authenticator.credentials()
    plugin.failure = "the network is down"
    time.seconds += 5
    assert not await authenticator.renew(rejected)


async def test_kubeconfig_credentials_complement_a_plugin(plugin):
    beside = User(client_certificate=b"cert", client_key=b"key")
    identity = await plugin.authenticator(beside).credentials()
    assert identity == Credentials("Bearer token-1", ClientCertificate(b"cert", b"key"))


async def test_a_plugin_may_give_only_a_certificate(plugin):
    plugin.token, plugin.certificate = "", ClientCertificate(b"cert", b"key")
    identity = await plugin.authenticator(User(token="t")).credentials()
    assert identity == Credentials("Bearer t", ClientCertificate(b"cert", b"key"))


async def test_a_request_that_gives_up_leaves_the_run_to_the_next(plugin):
    authenticator = plugin.authenticator()
    first = asyncio.create_task(authenticator.credentials())
    second = asyncio.create_task(authenticator.credentials())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).authorization == "Bearer token-2"
