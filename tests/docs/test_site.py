"""The pages make a site: every link leads somewhere, and nothing in it is fetched from another host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build as `make docs` does, in a process of its own; a warning of mkdocs or of Python fails."""
    command = [sys.executable, "-W", "error", "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


class Fetched(HTMLParser):
    """What a browser loads for a page by itself; links that a reader may follow are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (tag == "link" and name == "href"):
                self.addresses.append(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs") / "site"
    done = build(ROOT, made)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_the_site_has_every_page_and_what_the_pages_link_to(site: Path) -> None:
    """A page that no navigation names, or a link that leaves the site, is lost to a reader."""
    for page in (ROOT / "docs").glob("*.md"):
        built = site / "index.html" if page.stem == "index" else site / page.stem / "index.html"
        html = built.read_text(encoding="utf-8")
        assert "```" not in html, f"{page.name}: a block of code is not shown as one"
        assert r"\|" not in html, f"{page.name}: a table shows its escapes"
    gate = site / "repository" / "pytest_once" / "reference" / "gate.py" / "index.html"
    assert "class Gate" in gate.read_text(encoding="utf-8")
    cuts = site / "repository" / "examples" / "five_cuts" / "index.html"
    assert "protocols.py" in cuts.read_text(encoding="utf-8")


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    """The documentation can be read without a network, and tells nobody that it is read."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        reader = Fetched()
        reader.feed(page.read_text(encoding="utf-8"))
        assert reader.addresses
        assert not [address for address in reader.addresses if urlsplit(address).netloc], page
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.findall(r"url\(['\"]?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*;", text), style


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ("[gone](nowhere.md)", "nowhere.md"),
        ("[gone](reference.md#no-such-heading)", "no-such-heading"),
        ("[gone](../examples/no_such_example/)", "which the repository does not have"),
    ],
)
def test_a_dead_link_is_refused(broken: str, complaint: str, tmp_path: Path) -> None:
    """A check that accepts everything would look the same until somebody follows a link."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs-tools", tmp_path / "docs-tools")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "reference.md").write_text("# Reference\n", encoding="utf-8")
    config = (tmp_path / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"(?s)\nnav:\n.*\nvalidation:", "\nvalidation:", config))
    page = tmp_path / "docs" / "index.md"
    page.write_text("# Page\n\n[here](reference.md#reference)\n", encoding="utf-8")
    sound = build(tmp_path, tmp_path / "sound")
    assert sound.returncode == 0, sound.stdout + sound.stderr
    page.write_text(f"# Page\n\n{broken}\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "broken")
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
