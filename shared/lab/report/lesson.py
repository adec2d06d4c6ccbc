"""The text of a lesson on the workshop page, made from its README.md."""

import functools
import posixpath
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from shared.lab.records import exercises, scripts
from shared.run.record import ROOT

SECTIONS = (
    "The script",
    "The change",
    "Run it",
    "Why the memory changes",
    "What you pay",
    "Speed",
    "In your own script",
)
# The page shows these itself, wherever they stand, and a diff even where it is folded.
DRAWN = re.compile(
    r"(<details><summary>[^\n]*\n\n)?"
    r"<!-- generated: (?:diff|glance|on_a_card|picture|strips)\b.*?<!-- end -->\n"
    r"(\n</details>\n)?",
    re.DOTALL,
)
LINK = r"\[[^]]*\]\([^)]*\)"
# A sentence that only leads elsewhere.
POINTER = re.compile(rf"(?:(?<=[.!?])|^) ?{LINK}(?:, and {LINK})*\.(?=\s|$)", re.MULTILINE)
# Sections of other pages that are parts of this one.
PARTS = {("shared/memory", "which-line-is-wrong"): "#wrong"}
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
FIRST = re.compile(r"# .*?\n\n(.*?)\n\n", re.DOTALL)  # what follows the title
# The pages are trusted: their HTML, which makes sections collapsible, stays HTML.
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
# A wide table scrolls, not the whole page.
MARKDOWN.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>\n")
# Where a long name may break on a narrow screen: a.b, a_b, a/b, a(b and aB.
CUT = re.compile(r"(?<=\w[._/(=])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])")
LONG = re.compile(r"[^\s<>]{16,}")


def sections(folder):
    """Return the sections of a lesson on the page, {title: its "id", "title" and "html"}."""
    return {
        title: {"id": place(folder, slug(title)), "title": title, "html": _html(tokens, folder)}
        for title, tokens in _parsed(folder).items()
        if title in SECTIONS
    }


def head(folder):
    """Return the first paragraph of a lesson, how it ends on a card, and its glance, as HTML.

    Where nothing ends on a card, the second is None.
    """
    inline = _html(MARKDOWN.parseInline(FIRST.match(COMMENT.sub("", _source(folder)))[1]), folder)
    return inline, _generated("on_a_card", folder), _generated("glance", folder)


def _generated(part, folder):
    """Return a generated part of a lesson as HTML, None if the lesson does not have it."""
    found = re.search(rf"<!-- generated: {part} -->\n(.*?)<!-- end -->", _source(folder), re.DOTALL)
    return markdown(found[1], folder) if found else None


def markdown(text, folder):
    """Return Markdown of a lesson as HTML."""
    return _html(MARKDOWN.parse(text), folder)


def place(folder, anchor=""):
    """Return the id, on the page, of a lesson or of a part of it."""
    return "-".join([folder, "train", *([anchor] if anchor else [])])


def slug(title):
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-")


def target(link, folder):
    """Return the target on the page of a link such as "../06_sgd/#idea", or None."""
    # To another site, such as https://; it works from the page as well.
    if re.match(r"\w+:", link):
        return link
    path, _, anchor = link.partition("#")
    page = posixpath.normpath(posixpath.join(folder, path.removesuffix("README.md")))
    if page not in scripts.folders():
        return PARTS.get((page, anchor))
    return f"#{place(page, anchor)}" if not anchor or anchor in _anchors(page) else None


def without_pointers(text, folder):
    """Return Markdown without the sentences that only lead to what is not on the page."""

    def kept(match):
        links = re.findall(r"\]\(([^)]*)\)", match[0])
        return match[0] if any(target(link, folder) for link in links) else ""

    return POINTER.sub(kept, text)


def cut(html):
    """Return HTML with possible line breaks inside long names, and none before a unit."""
    whole = re.sub(r"(?<=\d) (?=(GB|MB|ms)\b)", "\xa0", str(html))
    pieces = re.split(r"(<[^>]*>)", whole)  # every second one is a tag
    pieces[::2] = [LONG.sub(lambda name: CUT.sub("<wbr>", name[0]), text) for text in pieces[::2]]
    return Markup("".join(pieces))


def _anchors(folder):
    numbers = [f"exercise-{exercise.number}" for exercise in exercises.of_page(folder)]
    titles = re.findall(r"^## (.*)$", _source(folder), re.MULTILINE)
    return {*numbers, *(slug(title) for title in titles if title in SECTIONS)}


def _source(folder):
    return (ROOT / folder / "README.md").read_text()


@functools.cache
def _parsed(folder):
    """Return the tokens of a README.md's sections, {title: list}."""
    # What is drawn first: it is found by its comments.
    source = COMMENT.sub("", DRAWN.sub("", _source(folder)))
    tokens = MARKDOWN.parse(without_pointers(source, folder))
    # A heading is three tokens: it opens, has a line, and closes.
    starts = [i for i, t in enumerate(tokens) if t.type == "heading_open" and t.tag == "h2"]
    ends = [*starts[1:], len(tokens)]
    return {tokens[i + 1].content: tokens[i + 3 : end] for i, end in zip(starts, ends)}


def _html(tokens, folder):
    """Render tokens; links lead to places on the page."""
    shown = []
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token = token.copy(tag=f"h{int(token.tag[1]) + 2}")  # a lesson's title is an h3 here
        elif token.type == "inline":
            token = token.copy(children=_inline(token.children, folder))
        if token.type == "paragraph_close" and not shown[-1].children:
            del shown[-2:]  # the paragraph is empty
        else:
            shown.append(token)
    return Markup(MARKDOWN.renderer.render(shown, MARKDOWN.options, {}))


def _inline(children, folder):
    """Return the tokens of a line, without pictures and without links that leave the page."""
    kept = []
    links = []  # of the links that are open: the new target, or None
    for child in children:
        if child.type == "link_open":
            links.append(target(child.attrs["href"], folder))
            if links[-1]:
                kept.append(child.copy(attrs={"href": links[-1]}))
        elif child.type == "link_close":
            # The text of a link stays, also where its target is not on the page.
            if links.pop():
                kept.append(child)
        elif child.type == "text":
            kept.append(_made(cut(escape(child.content))))
        elif child.type == "code_inline":
            # A name that fits into any line is not broken, so that it can be read at once.
            short = ' class="whole"' if len(child.content) < 20 else ""
            kept.append(_made(f"<code{short}>{cut(escape(child.content))}</code>"))
        elif child.type != "image":  # the page draws its own
            kept.append(child)
    return kept


def _made(html):
    # HTML, since the renderer would escape the tags in a token of text.
    return Token("html_inline", "", 0, content=str(html))
