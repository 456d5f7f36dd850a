"""Add the generated pages to a build of mkdocs; nothing generated is kept in ``site/``.

``mkdocs.yml`` names this hook. Its navigation has the index of a kind; the kind's other pages belong to the same
section. In a hand-written page a snippet of ``snippets.SNIPPETS`` replaces ``<!-- generated: NAME WORDS -->``. HTML
links to a page as ``href="md:flags/session-len.md"``. ``i18n/mkdocs_hook.py`` places the translated pages.
"""

import re
import subprocess
from collections.abc import Mapping
from html import unescape

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import TableOfContents

from recommender.knowledge.load import data_root
from recommender.site import frame, redirects, snippets, social_card
from recommender.site.api import api
from recommender.site.browser import bundle, npm, stored_answers
from recommender.site.i18n.mkdocs_hook import place_pages
from recommender.site.i18n.translation import ENGLISH, LANGUAGES, in_language, language_of, plain
from recommender.site.page_list import SNIPPET, generated_pages
from recommender.site.pages.reference import schema_files
from recommender.site.site_data import site_data

KEPT = re.compile(r"(<(?:pre|script|textarea|style)\b.*?</(?:pre|script|textarea|style)>)", re.DOTALL)
"""Elements whose blanks count."""
ARTICLE = re.compile(r"(<article\b.*</article>)", re.DOTALL)
"""The page's own text; around it, no blank beside an element counts."""
LINE_BREAK = re.compile(r"\n(?=<)|(?<=>)\n")
BLOCK = (
    r"</?(?:article|blockquote|dd|details|div|dl|dt|figure|h\d|li|ol|p|section|summary|t[dhr]|table|tbody|thead|ul)\b"
)
BLOCK_EDGE = re.compile(rf"\n(?={BLOCK})|({BLOCK}[^<>]*>)\n")
"""A line break beside a block, which a browser does not show."""
NO_HEAD = re.compile(r"<thead>\n<tr>\n(?:<th(?: class=\"n\")?></th>\n)+</tr>\n</thead>\n")
"""The head of a table of names and values, which Markdown cannot leave out."""
ROW_NAME = re.compile(r"<td><strong>([^\n]*?)</strong></td>")
"""The name of a row, which Markdown cannot make a head."""
NOT_NEEDED = re.compile(r"</(?:li|t[dhr])>")
"""End tags that HTML leaves out: the next item, cell or row ends the one before."""
REFERENCES = (("&#95;", "_"), ("&#42;", "*"), ("&#124;", "|"), ("&#x27;", "'"))
"""References for Markdown, which a page's text does not need."""
REPOSITORY = "REPOSITORY_URL"
"""What stands for the repository's address in hand-written pages."""
LEAST, MOST = 30, 200
"""Characters of a page's description."""
PRODUCTS = ("gpus/", "models/")
LINKS = 40
"""Most links in a side bar."""
UNUSED = re.compile(r"^assets/javascripts/(lunr|workers)/|\.map$")
"""What the theme brings for its own search, and maps of its sources: more than all else that it brings."""
LINK = re.compile(r'href="md:([^"#?]+)([?#][^"]*)?"')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Link to the repository that this checkout is a clone of, unless REPO_URL names it."""
    config.repo_url = config.repo_url or _origin() or None
    return config


def _origin() -> str:
    """Return the web address of the remote repository; empty without one."""
    command = ["git", "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, cwd=data_root(), capture_output=True, text=True, check=False)
    except OSError:
        return ""
    address = re.sub(r"^git@([^:]+):", r"https://\1/", done.stdout.strip())
    return address.removesuffix(".git") if address.startswith("https://") and "@" not in address else ""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated; leave out what the theme brings and no page uses."""
    for file in [*files]:
        if UNUSED.search(file.src_uri):
            files.remove(file)
    _join(files, config)
    for language in LANGUAGES:
        for page in generated_pages(language):
            files.append(File.generated(config, in_language(page.path, language), content=page.markdown))
    for path in schema_files():
        files.append(File.generated(config, f"reference/schema/{path.name}", abs_src_path=str(path)))
    for name, text in (*api.files(site_data()), *stored_answers.files().items(), *redirects.files(site_data())):
        files.append(File.generated(config, name, content=text))
    runtime = ((f"{bundle.folder()}/{name}", content) for name, content in _runtime().items())
    for name, content in (*social_card.files(), *runtime):
        files.append(File.generated(config, name, content=content))
    return files


def _join(files: Files, config: MkDocsConfig) -> None:
    """Replace the style sheets and the scripts of every page by one of each."""
    templates = config.theme.get_env()

    def theme_text(language: str, name: str) -> str:
        return str(templates.get_template(f"partials/languages/{language}.html").module.t(name))  # type: ignore[attr-defined]

    parts = {file.src_uri: file for file in files if frame.is_part(file.src_uri)}
    texts = {path: file.content_string for path, file in parts.items()}
    theme = {"features": config.theme["features"], "version": config.extra["version"]}
    for file in parts.values():
        files.remove(file)
    for path, text in frame.files(texts, theme, theme_text):
        files.append(File.generated(config, path, content=text))


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Give the pages outside the navigation the section of their folder's index, so that its door is marked."""
    place_pages(files.documentation_pages(), ENGLISH)
    return nav


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

    return SNIPPET.sub(snippet, markdown.replace(REPOSITORY, config.repo_url or data_root().name))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Drop the blanks between elements: a third of a short page. Name the cells of figures by a class."""
    output = output.replace(' style="text-align: right;"', ' class="n"')
    output = "".join(part if place % 2 else _tightened(part) for place, part in enumerate(KEPT.split(output)))
    return "".join(part if place % 2 else LINE_BREAK.sub("", part) for place, part in enumerate(ARTICLE.split(output)))


def _tightened(html: str) -> str:
    """Drop from HTML without code what a browser does not show."""
    html = ROW_NAME.sub(r"<th>\1</th>", NO_HEAD.sub("", re.sub(r"\s*\n\s*", "\n", html)))
    for reference, character in REFERENCES:
        html = html.replace(reference, character)
    return NOT_NEEDED.sub("", BLOCK_EDGE.sub(r"\1", html))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Resolve the ``md:`` links in HTML, which Markdown does not read; describe the page by its beginning."""

    # Pages of a kind begin alike, so name the product in the description.
    name = f"{page.title}: " if page.file.src_uri.startswith(PRODUCTS) and not page.is_index else ""
    page.meta.setdefault("description", name + _first_sentences(html))
    page.toc = _shortened(page.toc)

    def resolve(link: re.Match[str]) -> str:
        file = files.get_file_from_path(link[1])
        if file is None:
            raise PluginError(f"{page.file.src_uri}: link to {link[1]}, but there is no such page")
        return f'href="{file.url_relative_to(page.file)}{link[2] or ""}"'

    return LINK.sub(resolve, html)


def _shortened(toc: TableOfContents) -> TableOfContents:
    """Return the headings that a side bar has room for: all, those of the first levels, or none."""
    (top,) = toc.items or (None,)
    if top is None:
        return toc
    if len(top.children) + sum(len(child.children) for child in top.children) > LINKS:
        for child in top.children:
            child.children = []
    if len(top.children) > LINKS:
        top.children = []
    return toc


def _first_sentences(html: str) -> str:
    """Return the first paragraph with text, cut after a word; one in italics says only of what kind a page is."""
    texts = (re.sub(r"<[^>]+>", "", found) for found in re.findall(r"<p\b[^>]*>(?!<em>)(.*?)</p>", html, re.DOTALL))
    first = next((" ".join(unescape(plain(text)).split()) for text in texts if len(text.strip()) > LEAST), "")
    return first if len(first) <= MOST else first[:MOST].rsplit(" ", 1)[0] + " …"
