"""As much of the API of a Kubernetes cluster as Helm needs to render, and to look a Secret up."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml


class Api(http.server.BaseHTTPRequestHandler):
    """Handler of requests; `secrets` has the value of the key `secret` by name, in the namespace kafka."""

    secrets: dict[str, str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        secret = path.removeprefix("/api/v1/namespaces/kafka/secrets/")
        if path == "/version":
            self._send({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
        elif path == "/api/v1":
            resource = {"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get"], "singularName": ""}
            self._send({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]})
        elif path in ("/api", "/apis"):
            self._send(
                {"kind": "APIVersions", "versions": ["v1"]}
                if path == "/api"
                else {"kind": "APIGroupList", "groups": []}
            )
        elif secret in self.secrets:
            data = {"secret": self.secrets[secret]}
            self._send({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "data": data})
        else:
            self._send({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}, 404)

    def _send(self, body: dict[str, object], status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def small_api(folder: Path) -> Iterator[tuple[type[Api], Path]]:
    handler = type("Handler", (Api,), {"secrets": {}})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    config = folder / "kubeconfig"
    cluster = {"name": "small", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "small", "context": {"cluster": "small", "user": ""}}
    content = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
    config.write_text(yaml.safe_dump(content | {"current-context": "small"}))
    try:
        yield handler, config
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
