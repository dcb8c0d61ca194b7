"""Hook of mkdocs: files of the repository that a page links to are part of the site, as pages of their own.

The pages are written to be read where the repository is, so a link leaves docs/ (`../examples/five_cuts/`). A site has
nothing there. A link to what does not exist is a warning, which a strict build refuses.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_log = logging.getLogger("mkdocs.hooks.repository")

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)]*)?(?=\))")
_LANGUAGES = {".py": "python", ".sh": "bash", ".mjs": "javascript", ".toml": "toml", ".json": "json", ".txt": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each linked file, and for what those pages link to."""
    root = _root(config)
    waiting = [
        (page.src_uri, posixpath.join("docs", page.src_uri), page.content_string)
        for page in files.documentation_pages()
    ]
    while waiting:
        page, place, text = waiting.pop()
        for match in _LINK.finditer(text):
            target = _target(place, match[1])
            if target.startswith("docs/"):
                continue  # mkdocs looks after its own
            if not (root / target).exists() or target.startswith(".."):
                _log.warning(f"{page} links to {match[1]}, which the repository does not have")
                continue
            source = _page_of(target)
            if files.get_file_from_path(source) is None:
                shown = _shown(root, target)
                files.append(File.generated(config, source, content=shown))
                if target.endswith(".md") or (root / target).is_dir():
                    waiting.append((source, posixpath.join(target, "") if (root / target).is_dir() else target, shown))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead each link out of docs/ to the page that was made for it."""
    here = page.file.src_uri
    place = _origin(here, _root(config))
    if not place.endswith((".md", "/")):
        return markdown  # a file of code: what looks like a link in it is none

    def led(match: re.Match[str]) -> str:
        target = _target(place, match[1])
        aim = target.removeprefix("docs/") if target.startswith("docs/") else _page_of(target)
        return posixpath.relpath(aim, posixpath.dirname(here) or ".") + (match[2] or "")

    return _LINK.sub(led, markdown)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


def _target(place: str, link: str) -> str:
    """The path of what is linked, from the repository's root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))


def _page_of(target: str) -> str:
    return f"repository/{target}" if target.endswith(".md") else f"repository/{target}.md"


def _origin(page: str, root: Path) -> str:
    """The file or, with a slash, the directory that a page shows."""
    if not page.startswith("repository/"):
        return posixpath.join("docs", page)
    target = page.removeprefix("repository/")
    if (root / target).is_file():
        return target
    target = target.removesuffix(".md")
    return posixpath.join(target, "") if (root / target).is_dir() else target


def _readable(path: Path) -> bool:
    """Whether a listing shows it: somebody may have left a database beside the examples."""
    return path.is_dir() or path.suffix == ".md" or path.suffix in _LANGUAGES


def _shown(root: Path, target: str) -> str:
    """The file as Markdown, or a list of what is in the directory."""
    path = root / target
    if path.is_dir():
        inside = sorted(one.name for one in path.iterdir() if one.name[0] not in "._" and _readable(one))
        return f"# {target}\n\n" + "".join(f"- [{name}]({name})\n" for name in inside)
    text = path.read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    return f"# {target}\n\n~~~~~{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n~~~~~\n"
