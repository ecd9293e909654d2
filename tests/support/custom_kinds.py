"""Kinds of operators that the chart has manifests of, for an API server without these operators."""

from __future__ import annotations

import json

from tests.support.control_plane import ControlPlane

KINDS = {
    "monitoring.coreos.com/v1": ("ServiceMonitor", "PodMonitor", "PrometheusRule"),
    "cert-manager.io/v1": ("Certificate",),
    "gateway.networking.k8s.io/v1alpha2": ("TLSRoute",),
}
UNAPPROVED = {"api-approved.kubernetes.io": "unapproved, of a test"}
"""Annotation without which an API server refuses kinds of a group of Kubernetes itself."""
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def define(cluster: ControlPlane) -> None:
    """Define the kinds, with any content, and wait until they are served."""
    names = []
    for served, kinds in KINDS.items():
        group, _, release = served.partition("/")
        for kind in kinds:
            plural = f"{kind.lower()}s"
            names.append(f"crd/{plural}.{group}")
            version = {"name": release, "served": True, "storage": True, "schema": {"openAPIV3Schema": ANYTHING}}
            definition = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}", "annotations": UNAPPROVED},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                    "versions": [version],
                },
            }
            cluster.kubectl("apply", "--filename", "-", text=json.dumps(definition))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
