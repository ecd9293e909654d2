"""The command that writes schemas/ anew."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from kafka_share_proxy.wire.definitions import extract, specs
from kafka_share_proxy.wire.definitions.specs import SchemaError

COMMENTED = """// A licence.
{
  "apiKey": 3, "type": "request", "name": "ARequest", // a remark
  "validVersions": "0-1", "flexibleVersions": "1+", "listeners": ["broker"],
  "fields": [
    // Why this field is here: see http://example.com
    { "name": "Url", "type": "string", "versions": "0+", "default": "http://x", "about": "Prose." },
    { "name": "Parts", "type": "[]Part", "versions": "1+", "fields": [
      { "name": "Data", "type": "bytes", "versions": "1+", "zeroCopy": true, "about": "Prose." } ]}
  ]
}
"""


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar with one definition among other things."""
    path = tmp_path / "kafka-clients-0.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("common/message/ARequest.json", COMMENTED)
        archive.writestr("common/message/README.md", "prose")
        archive.writestr("other/BRequest.json", "{}")
    return path


def test_layouts_are_kept_without_comments_and_descriptions(jar: Path, tmp_path: Path) -> None:
    """Comments and descriptions are left out; a `//` inside a value is not a comment."""
    target = tmp_path / "schemas"
    assert extract.main([str(jar), str(target)]) == 0
    text = (target / "ARequest.json").read_text()
    raw = json.loads(text)
    assert "Prose" not in text
    assert "zeroCopy" not in text
    assert raw["fields"][0]["default"] == "http://x"
    assert raw["fields"][1]["fields"] == [{"name": "Data", "type": "bytes", "versions": "1+"}]
    assert [path.name for path in sorted(target.iterdir())] == ["ARequest.json", "PROVENANCE"]


def test_provenance_names_the_artifact(jar: Path, tmp_path: Path) -> None:
    """The extraction can be repeated from the same bytes, to check a layout."""
    extract.main([str(jar), str(tmp_path / "schemas")])
    text = (tmp_path / "schemas" / "PROVENANCE").read_text()
    assert hashlib.sha256(jar.read_bytes()).hexdigest() in text
    assert jar.name in text
    assert str(tmp_path) not in text


def test_extraction_reproduces_the_definitions(tmp_path: Path) -> None:
    """Read back and written again, every file in schemas/ is the same text; none is edited by hand."""
    here = Path(str(specs.location()))
    extract.write(dict(extract.definitions(here)), tmp_path)
    ours = {path.name: path.read_text() for path in here.glob("*.json")}
    assert ours
    assert ours == {path.name: path.read_text() for path in tmp_path.glob("*.json")}


def test_old_definitions_are_deleted_and_sub_folders_kept(jar: Path, tmp_path: Path) -> None:
    """Definitions removed by Kafka disappear; our own definitions in internal/ are not touched."""
    target = tmp_path / "schemas"
    (target / "internal").mkdir(parents=True)
    (target / "internal" / "Own.json").write_text("{}")
    (target / "Dropped.json").write_text("{}")
    extract.main([str(jar), str(target)])
    assert (target / "internal" / "Own.json").exists()
    assert not (target / "Dropped.json").exists()


def test_nothing_is_written_when_a_definition_is_not_understood(tmp_path: Path) -> None:
    """Half an upgrade would be worse than none."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "B.json").write_text(COMMENTED.replace('"apiKey"', '"apiKeys"'))
    target = tmp_path / "schemas"
    with pytest.raises(SchemaError, match="apiKeys"):
        extract.main([str(tmp_path / "from"), str(target)])
    assert not target.exists()


def test_a_wrong_call_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an artifact the command says how to call it, status 2."""
    assert extract.main([]) == 2
    assert "usage" in capsys.readouterr().err
