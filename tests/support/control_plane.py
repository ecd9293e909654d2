"""A control plane of Kubernetes on this machine: etcd, the API server, and on request controllers and scheduler.

Real programs (`kubernetes_tools`) with their own data in a folder. There is no kubelet: tests/support/api_kubelet.py
runs the pods.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trustme
import yaml
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child

from tests.support.kubernetes_tools import need
from tests.support.raw import until

START_S = 120.0
RUN_S = 240
TOKEN = "of-the-tests"
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "disruption-controller",
    "endpointslice-controller",
    "serviceaccount-controller",
    "garbage-collector-controller",
)
PATCH = "application/strategic-merge-patch+json"


class ControlPlane:
    """etcd and the API server; `kubeconfig` is that of an administrator."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._children = folder, ExitStack()
        self._authority = trustme.CA()
        self._context = ssl.create_default_context(cadata=self._authority.cert_pem.bytes().decode())
        etcd, peer, self._port = free_ports(3)
        self.server = f"https://{HOST}:{self._port}"
        self.kubeconfig = self._write_kubeconfig()
        self._run(
            "etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", f"http://{HOST}:{etcd}",
            "--advertise-client-urls", f"http://{HOST}:{etcd}", "--listen-peer-urls", f"http://{HOST}:{peer}",
            "--initial-advertise-peer-urls", f"http://{HOST}:{peer}", "--initial-cluster",
            f"default=http://{HOST}:{peer}", "--unsafe-no-fsync",
        )  # fmt: skip
        self._run("kube-apiserver", *self._api_server_options(etcd))
        try:
            until(self._is_ready, "the API server", START_S)
        except TimeoutError:
            print(self.logs())
            self.close()
            raise

    def _write_kubeconfig(self) -> Path:
        authority = self.folder / "ca.pem"
        authority.write_bytes(self._authority.cert_pem.bytes())
        cluster = {"name": "tests", "cluster": {"server": self.server, "certificate-authority": str(authority)}}
        context = {"name": "tests", "context": {"cluster": "tests", "user": "admin"}}
        user = {"name": "admin", "user": {"token": TOKEN}}
        content = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": [user]}
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content | {"current-context": "tests"}))
        return path

    def _api_server_options(self, etcd: int) -> list[str]:
        pair, account = self._authority.issue_cert(HOST), trustme.CA().issue_cert("accounts")
        files = {name: self.folder / name for name in ("server.crt", "server.key", "accounts.key", "tokens.csv")}
        files["server.crt"].write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
        files["server.key"].write_bytes(pair.private_key_pem.bytes())
        files["accounts.key"].write_bytes(account.private_key_pem.bytes())
        files["tokens.csv"].write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        return [
            f"--etcd-servers=http://{HOST}:{etcd}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--secure-port={self._port}",
            f"--tls-cert-file={files['server.crt']}",
            f"--tls-private-key-file={files['server.key']}",
            f"--token-auth-file={files['tokens.csv']}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files['accounts.key']}",
            f"--service-account-signing-key-file={files['accounts.key']}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
        ]

    def run_controllers(self) -> None:
        """Start the controllers of workloads, and the scheduler."""
        common = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")
        self._run("kube-controller-manager", *common, f"--controllers={','.join(CONTROLLERS)}")
        self._run("kube-scheduler", *common)

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Return what kubectl prints; it must end with status 0."""
        done = self.run(str(need("kubectl")), *words, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def helm(self, *words: str) -> str:
        """Return what Helm prints; it must end with status 0 and without warnings."""
        done = self.run(str(need("helm")), *words)
        assert done.returncode == 0, f"helm {' '.join(words)}:\n{done.stdout}{done.stderr}"
        assert not done.stderr, done.stderr
        return done.stdout

    def run(self, *command: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command that uses this cluster."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HELM_CACHE_HOME": str(self.folder / "helm")}
        return subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def get(self, *words: str) -> dict[str, Any]:
        """Return objects as kubectl gets them."""
        document: dict[str, Any] = json.loads(self.kubectl("get", *words, "--output", "json"))
        return document

    def request(self, method: str, path: str, body: object = None, kind: str = "application/json") -> dict[str, Any]:
        """Send a request to the API. Raises urllib.error.HTTPError."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        sent = urllib.request.Request(f"{self.server}{path}", data, headers, method=method)
        with urllib.request.urlopen(sent, timeout=30, context=self._context) as response:
            document: dict[str, Any] = json.load(response)
        return document

    def logs(self) -> str:
        """Return the end of what the programs wrote."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-4000:]}" for log in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        """End all programs."""
        self._children.close()

    def _run(self, name: str, *options: str) -> None:
        child = Child([str(need(name)), *options], self.folder / f"{name}.log")
        self._children.callback(child.stop)

    def _is_ready(self) -> bool:
        sent = urllib.request.Request(f"{self.server}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(sent, timeout=5, context=self._context) as response:
                return bool(response.status == 200)
        except OSError:  # not there yet, or not ready (HTTPError)
            return False
