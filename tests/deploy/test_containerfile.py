"""The container file, without building it (tests/long/kubernetes_image.py builds and runs it)."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
TEXT = (CHECKOUT / "deploy" / "Containerfile").read_text(encoding="utf-8")
IGNORED = (CHECKOUT / "deploy" / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
CHART = CHECKOUT / "deploy" / "helm" / "kafka-share-proxy"


def copied() -> list[str]:
    """Return the files and folders of the checkout that are copied."""
    lines = re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", TEXT)
    return [word for line in lines for word in line.split()]


def test_everything_that_it_copies_is_there_and_passes_the_ignore_file() -> None:
    assert len(copied()) > 3
    assert [name for name in copied() if not (CHECKOUT / name).exists()] == []
    assert [f"!{name}" for name in copied()] == [line for line in IGNORED if line.startswith("!")]


def test_what_the_package_is_built_from_is_copied() -> None:
    pyproject = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    folders = re.findall(r'(?m)^"[\w.]*" = "(\w+)[/\w]*"$', pyproject)
    assert set(folders) == {"proxy", "schemas"}
    assert {*folders, "README.md", "LICENSE", "pyproject.toml", "deploy/release"} == set(copied())


def test_user_and_entry_point_are_those_of_the_chart() -> None:
    pod = (CHART / "templates" / "_pod.tpl").read_text(encoding="utf-8")
    user, group = re.findall(r"(?m)^USER (\d+):(\d+)$", TEXT)[0]
    assert f"runAsUser: {user}\n" in pod
    assert f"runAsGroup: {group}\n" in pod
    assert 'ENTRYPOINT ["kafka-share-proxy"]' in TEXT
    assert "args: [serve, --config" in pod


def test_chart_and_package_have_one_version() -> None:
    version = re.findall(r'(?m)^version = "(.*)"$', (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))[0]
    for chart in CHART.parent.iterdir():
        assert yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == version
    sidecar = CHART.parent / "kafka-share-proxy-sidecar" / "templates" / "_sidecar.tpl"
    assert f'(default "{version}" $v.image.tag)' in sidecar.read_text(encoding="utf-8")
    manifests = CHECKOUT / "deploy" / "kubernetes"
    images = {
        image
        for path in manifests.glob("*.yaml")
        for image in re.findall(r'image: "?(kafka-share-proxy:\S+?)"?\s', path.read_text())
    }
    assert images == {f"kafka-share-proxy:{version}"}
