"""Software bill of materials of a wheel (PEP 770), as CycloneDX 1.6: package, kernels and Kafka's definitions."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from email.parser import BytesParser
from typing import Any

PROVENANCE = "kafka_share_proxy/schemas/PROVENANCE"
ARTIFACT = re.compile(r"artifact: +(?P<group>[\w.]+):(?P<name>[\w-]+) \(\S+-(?P<version>[\d.]+)\.jar\)")
CHECKSUM = re.compile(r"sha256: +([0-9a-f]{64})")
KERNEL = ".so"
Json = dict[str, Any]


def written(entries: Mapping[str, bytes], metadata: str, commit: str, epoch: int) -> bytes:
    """Return the text for a wheel with these entries, by path. `metadata`: path of its METADATA."""
    headers = BytesParser().parsebytes(entries[metadata], headersonly=True)
    package = _package(headers["Name"], headers["Version"], headers["License-Expression"], commit)
    definitions = _definitions(entries[PROVENANCE].decode())
    kernels = [_kernel(name, data) for name, data in sorted(entries.items()) if name.endswith(KERNEL)]
    content = b"".join(hashlib.sha256(name.encode() + b"\0" + data).digest() for name, data in sorted(entries.items()))
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, hashlib.sha256(content).hexdigest()).urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(),
            "lifecycles": [{"phase": "build"}],
            "component": package,
        },
        "components": [definitions, *kernels],
        "dependencies": [
            {"ref": package["bom-ref"], "dependsOn": [definitions["bom-ref"], *(each["bom-ref"] for each in kernels)]}
        ],
    }
    return (json.dumps(bill, indent=1) + "\n").encode()


def _package(name: str, version: str, licence: str, commit: str) -> Json:
    purl = f"pkg:pypi/{name}@{version}"
    made = {
        "type": "application",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"expression": licence}],
    }
    return made | ({"properties": [{"name": "commit", "value": commit}]} if commit else {})


def _definitions(provenance: str) -> Json:
    """Return the jar that Kafka's message definitions are taken from."""
    artifact, checksum = ARTIFACT.search(provenance), CHECKSUM.search(provenance)
    if artifact is None or checksum is None:
        raise ValueError(f"{PROVENANCE} names no artifact with version and sha256: {provenance}")
    purl = "pkg:maven/{group}/{name}@{version}".format(**artifact.groupdict())
    return {
        "type": "library",
        "bom-ref": purl,
        **artifact.groupdict(),
        "purl": purl,
        "description": "Layouts of Kafka's messages, taken from its definitions. No code of it is in the wheel.",
        "hashes": [{"alg": "SHA-256", "content": checksum[1]}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def _kernel(path: str, data: bytes) -> Json:
    return {
        "type": "file",
        "bom-ref": path,
        "name": path,
        "description": "C extension, built from the C source of the same name",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}],
    }
