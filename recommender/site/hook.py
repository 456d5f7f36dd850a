"""Add the generated pages to a build of mkdocs; nothing generated is kept in ``site/``.

``mkdocs.yml`` names this hook. In its navigation a folder (``gpus/``) stands for all generated pages in it. In a
hand-written page a snippet of ``snippets.SNIPPETS`` replaces ``<!-- generated: NAME WORDS -->``. HTML links to a page
as ``href="md:flags/session-len.md"``. ``i18n/mkdocs_hook.py`` places the translated pages.
"""

import re
from collections.abc import Mapping

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from recommender.site import snippets
from recommender.site.api import api
from recommender.site.browser import bundle, npm, stored
from recommender.site.i18n.translation import LANGUAGES, in_language, language_of
from recommender.site.page_list import SNIPPET, generated_pages
from recommender.site.pages.reference import schema_files
from recommender.site.site_data import site_data

LINK = re.compile(r'href="md:([^"#]+)(#[^"]*)?"')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, the JSON schemas and the JSON API."""
    for language in LANGUAGES:
        for page in generated_pages(language):
            files.append(File.generated(config, in_language(page.path, language), content=page.markdown))
    for path in schema_files():
        files.append(File.generated(config, f"reference/schema/{path.name}", abs_src_path=str(path)))
    for name, text in (*api.files(site_data()), *stored.files().items()):
        files.append(File.generated(config, name, content=text))
    for name, content in _runtime().items():
        files.append(File.generated(config, f"{bundle.folder()}/{name}", content=content))
    return files


def _runtime() -> Mapping[str, bytes]:
    try:
        return bundle.files() if bundle.describe() else {}
    except npm.NotFetched as error:
        raise PluginError(str(error)) from None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert the snippets into a hand-written page."""

    def snippet(marker: re.Match[str]) -> str:
        if marker["name"] not in snippets.SNIPPETS:
            raise PluginError(
                f"{page.file.src_uri}: unknown snippet {marker['name']!r}; snippets.SNIPPETS lists the known ones"
            )
        lines = snippets.SNIPPETS[marker["name"]](site_data(language_of(page.file.src_uri)), marker["words"])
        return "\n".join(lines)

    return SNIPPET.sub(snippet, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Resolve the ``md:`` links in HTML, which Markdown does not read."""

    def resolve(link: re.Match[str]) -> str:
        file = files.get_file_from_path(link[1])
        if file is None:
            raise PluginError(f"{page.file.src_uri}: link to {link[1]}, but there is no such page")
        return f'href="{file.url_relative_to(page.file)}{link[2] or ""}"'

    return LINK.sub(resolve, html)
