"""What MkDocs is told besides mkdocs.yml: generated pages, and links from docs/ to other files of the repository.

Pages of the reference come from build/reference. A link to a file outside of docs/ (`../examples/cpp/mlp.cpp`) leads to
a page that shows the file; README.md is the site's first page, the changes and the contributor's guide are pages.
"""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "build" / "reference"
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".h": "c", ".py": "python", ".sh": "bash", ".toml": "toml", ".txt": "text"}
LINK = re.compile(r"(\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def page_of(path):
    """The page of the site that stands for a file of the repository, by its path in it."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PAGES.get(path) or f"files/{path}.md"


def with_links(text, folder, page, missing=lambda path: None):
    """The text with its links, which count from `folder` in the repository, made to those between pages of the site."""

    def link(match):
        begin, target, end = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if ":" in target or path.startswith("..") or not (ROOT / path).exists():
            return match[0]
        if not path.startswith("docs/") and path not in PAGES:
            missing(path)
        return begin + posixpath.relpath(page_of(path), posixpath.dirname(page) or ".") + end

    return LINK.sub(link, text)


def on_config(config):
    """The plugin `offline` wants a script from the network; docs/offline-search.js does the same."""
    config.extra["polyfills"] = ["offline-search.js"]
    return config


def on_files(files, config):
    """Adds what is not in docs/: the reference, guides of the repository, and files that pages link to."""
    from mkdocs.structure.files import File  # here, since tests ask this module for links without MkDocs

    pages = {f"reference/{path.name}": path.read_text() for path in sorted(REFERENCE.glob("*.md"))}
    linked = []
    for file in files.documentation_pages():
        text = (ROOT / "docs" / file.src_uri).read_text()
        with_links(text, posixpath.dirname(f"docs/{file.src_uri}"), file.src_uri, linked.append)
    for path, page in PAGES.items():
        if page not in {file.src_uri for file in files}:
            pages[page] = with_links((ROOT / path).read_text(), ".", page, linked.append)
    for path in sorted(set(linked)):
        pages[page_of(path)] = shown(path)
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.generated_by is None:
        folder = posixpath.dirname(f"docs/{page.file.src_uri}")
        return with_links(markdown, folder, page.file.src_uri)
    return markdown


def shown(path):
    """A page with the text of a file, or with the files of a folder."""
    place = ROOT / path
    files = sorted(file for file in place.iterdir() if file.is_file()) if place.is_dir() else [place]
    parts = [f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n"]
    for file in files:
        language = LANGUAGES.get(file.suffix, "text")
        parts.append(f'````{language} title="{file.relative_to(ROOT)}"\n{file.read_text()}````\n')
    return "\n".join(parts)
