"""The workflow of a release, run on this machine: .github/workflows/release.yml, every script of every job.

    tests/run tests/long/release_workflow.py

What GitHub does is replaced (tests/support/workflow_runs.py); nothing is published. The wheel for arm64 is left to
arm64_wheel.py. Packages are fetched as the workflow fetches them. Ten minutes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.deploy.test_distributions import BILL, VERSION
from tests.deploy.test_release_workflow import JOBS, steps
from tests.support import distributions
from tests.support.workflow_runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3000)]
GIT_S = 60


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of this checkout in one commit, which has the tag."""
    folder = tmp_path_factory.mktemp("tagged")
    distributions.copied(folder)
    (folder / "proxy" / "kafka_share_proxy" / "COMMIT").unlink()  # an sdist has it, a checkout has not
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-qm", "all"], ["tag", f"v{VERSION}"]):
        subprocess.run([*git, *words], cwd=folder, check=True, timeout=GIT_S)
    return folder


@pytest.fixture(scope="module")
def done(tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(JOBS, tagged, tmp_path_factory.mktemp("run"), f"v{VERSION}", (platform.machine(),))
    run.start()
    return run


def test_every_script_of_the_workflow_has_run(done: Run) -> None:
    scripts = [step["run"] for _, step in steps() if "run" in step]
    builds = len(JOBS["wheels"]["strategy"]["matrix"]["build"])
    assert len(done.scripts) == len(scripts) - 1 + builds
    assert sum("cibuildwheel" in script for script in done.scripts) == builds


def test_sdist_and_wheel_are_attested_and_published(done: Run) -> None:
    names = set(done.published)
    assert names == {"actions/attest-build-provenance", "pypa/gh-action-pypi-publish"}
    attested, published = (done.published[name] for name in sorted(names))
    assert attested == published
    sdist, wheel = sorted(published, key=lambda name: name.endswith(".whl"))
    assert sdist == f"kafka_share_proxy-{VERSION}.tar.gz"
    assert wheel.startswith(f"kafka_share_proxy-{VERSION}-cp311-abi3-manylinux")
    assert wheel.endswith(f"_{platform.machine()}.whl")


def test_both_builds_of_the_wheel_have_the_same_bytes_and_a_bill_of_materials(done: Run) -> None:
    wheels = sorted((done.folder / "artifacts").glob("wheel-*/*.whl"))
    assert len({path.parent for path in wheels}) == 2
    assert len({hashlib.sha256(path.read_bytes()).digest() for path in wheels}) == 1
    assert json.loads(ZipFile(wheels[0]).read(BILL))["metadata"]["component"]["version"] == VERSION


def test_a_tag_of_another_version_is_refused(tagged: Path, tmp_path: Path) -> None:
    run = Run({"version": JOBS["version"]}, tagged, tmp_path, "v999.0.0", ())
    with pytest.raises(AssertionError, match=r"grep -qx"):
        run.start()
