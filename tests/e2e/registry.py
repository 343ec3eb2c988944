"""A registry on this machine from which the node pulls images."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from devcluster import Cluster
from devcluster.images.build import Image, write_layout
from devcluster.node.components import registry_directory


@contextmanager
def serving(cluster: Cluster, image: Image, names: Collection[str], directory: Path) -> Iterator[list[str]]:
    """Serve an image under these names to the node; give the paths of all requests.

    The directory holds the image while it is served.
    """
    write_layout(image, directory)
    (entry,) = json.loads((directory / "index.json").read_text())["manifests"]
    hosts = {name.partition("/")[0] for name in names}
    tags = {name.partition("/")[2].replace(":", "/manifests/") for name in names}
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            requests.append(f"{self.command} {path}")
            reference = path.removeprefix("/v2/")
            name, kind, digest = reference.rpartition("/")
            blob = directory / "blobs" / (entry["digest"] if reference in tags else digest).replace(":", "/")
            if not kind or not blob.is_file():
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            is_manifest = name.endswith("/manifests")
            self.send_response(HTTPStatus.OK)
            self.send_header(
                "Content-Type", entry["mediaType"] if is_manifest else "application/octet-stream"
            )
            self.send_header("Content-Length", str(blob.stat().st_size))
            self.send_header("Docker-Content-Digest", f"{blob.parent.name}:{blob.name}")
            self.end_headers()
            if self.command == "GET":
                with blob.open("rb") as content:
                    shutil.copyfileobj(content, self.wfile)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Requests are recorded, not printed."""

    address = urlsplit(cluster.url).hostname or ""
    with ThreadingHTTPServer((address, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://{address}:{server.server_port}"
            for host in hosts:
                mirror = registry_directory(cluster.directory) / host / "hosts.toml"
                mirror.parent.mkdir(parents=True, exist_ok=True)
                # containerd 1.6 ignores a file without a host; with the server alone it would ask Docker Hub.
                mirror.write_text(f'server = "{url}"\n[host."{url}"]\n')
            yield requests
        finally:
            shutil.rmtree(registry_directory(cluster.directory))
            server.shutdown()
            thread.join()
