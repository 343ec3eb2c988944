"""How this machine reaches package indexes, for commands that run in another root file system."""

from __future__ import annotations

import configparser
import io
import os
from pathlib import Path

PIP_CONFIGURATION = "/etc/pip.conf"
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", PIP_CONFIGURATION, "/etc/ssl/certs/ca-certificates.crt")
PREFIXES = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def index_variables() -> dict[str, str]:
    """Give the variables by which clients on this machine find package indexes."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}


def index_files() -> list[str]:
    """Name the files and directories of this machine that those clients read."""
    named = (value for value in index_variables().values() if value.startswith("/"))
    return [path for path in dict.fromkeys((*NETWORK_FILES, *named)) if Path(path).exists()]


def pip_configuration() -> str:
    """Give pip's configuration on this machine as one file, with the variables that override it."""
    merged = configparser.RawConfigParser()
    merged.read(
        [PIP_CONFIGURATION, Path.home() / ".config/pip/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")]
    )
    if not merged.has_section("global"):
        merged.add_section("global")
    for name, value in index_variables().items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE":
            merged.set("global", name.removeprefix("PIP_").lower().replace("_", "-"), value)
    text = io.StringIO()
    merged.write(text)
    return text.getvalue()
