"""The text of a lesson on the workshop page, made from its README.md."""

import functools
import posixpath
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from shared.lessons import exercises
from shared.records import scripts
from shared.records.scripts import ROOT
from shared.report import words

SECTIONS = ("Idea", "The diff", "Run it", "Why the memory changes", "What it costs")
SHORT = ("Change", "Memory", "Cost", "Builds on")
DIFF = re.compile(r"<!-- generated: diff -->.*?<!-- end -->\n", re.DOTALL)  # the page draws its own
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
PEAK = re.compile(r"<!-- generated: peak -->\n(.*?)\n<!-- end -->", re.DOTALL)
# The pages are our own, so their HTML, which folds things up, is HTML here too.
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
# A wide table is moved, not the whole page.
MARKDOWN.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>\n")
# Where a long name may be cut if the screen is narrow: a.b, a_b, a/b, a(b and aB.
CUT = re.compile(r"(?<=\w[._/(=])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])")
LONG = re.compile(r"[^\s<>]{16,}")


def sections(folder):
    """Returns what the page shows of a stage's lesson, {title: its "id", "title" and "html"}."""
    return {
        title: {"id": place(folder, slug(title)), "title": title, "html": _html(tokens, folder)}
        for title, tokens in _parsed(folder).items()
        if title in SECTIONS
    }


def short(folder):
    """Returns a lesson in short: a list of (label, HTML), and the line with its peak as HTML."""
    text = _source(folder)
    bullets = dict(re.findall(r"^- \*\*(.+?):\*\* (.*)$", text, re.MULTILINE))
    lines = [(label, _line(bullets[label], folder)) for label in SHORT]
    return lines, _line(PEAK.search(text)[1], folder)


def markdown(text, folder):
    """Returns Markdown of a lesson as HTML, in which words have been explained before."""
    return _html(MARKDOWN.parse(text), folder, explained=True)


def place(folder, anchor=""):
    """Returns the id, on the page, of a lesson or of a part of it."""
    return "-".join([folder, "train", *([anchor] if anchor else [])])


def slug(title):
    """Returns a heading's anchor as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-")


def target(link, folder):
    """Returns where a lesson's link, such as "../06_sgd/#idea", leads on the page, or None."""
    if re.match(r"\w+:", link):
        return link
    path, _, anchor = link.partition("#")
    there = posixpath.normpath(posixpath.join(folder, path.removesuffix("README.md")))
    if there not in scripts.folders():
        return None
    return f"#{place(there, anchor)}" if not anchor or anchor in _anchors(there) else None


def cut(html):
    """Returns HTML in which the browser may begin a new line inside long names."""
    pieces = re.split(r"(<[^>]*>)", str(html))  # every second one is a tag
    pieces[::2] = [LONG.sub(lambda name: CUT.sub("<wbr>", name[0]), text) for text in pieces[::2]]
    return Markup("".join(pieces))


def _anchors(folder):
    numbers = [f"exercise-{exercise.number}" for exercise in exercises.of_page(folder)]
    return {*numbers, *(slug(title) for title in _parsed(folder) if title in SECTIONS)}


def _source(folder):
    return (ROOT / folder / "README.md").read_text()


@functools.cache
def _parsed(folder):
    """Returns the tokens of a README.md's sections, {title: list}."""
    tokens = MARKDOWN.parse(COMMENT.sub("", DIFF.sub("", _source(folder))))
    starts = [i for i, t in enumerate(tokens) if t.type == "heading_open" and t.tag == "h2"]
    ends = [*starts[1:], len(tokens)]
    return {tokens[i + 1].content: tokens[i + 3 : end] for i, end in zip(starts, ends)}


def _line(text, folder):
    return _html(MARKDOWN.parseInline(text), folder)


def _html(tokens, folder, explained=False):
    """Renders tokens: links lead to places on the page, and words explain themselves."""
    marker, shown, folded, heading = words.Marker(), [], False, False
    for token in tokens:
        if token.type == "html_block":  # words in what is folded up have been explained before
            folded = "<details" in token.content or (folded and "</details" not in token.content)
        elif token.type in ("heading_open", "heading_close"):
            heading = token.nesting > 0
            token = token.copy(tag=f"h{int(token.tag[1]) + 2}")  # a lesson's title is an h3 here
        elif token.type in ("th_open", "th_close"):
            heading = token.nesting > 0
        elif token.type == "inline":
            explain = None if explained or folded or heading else marker.html
            token = token.copy(children=_inline(token.children, folder, explain))
        if token.type == "paragraph_close" and not shown[-1].children:
            del shown[-2:]  # a paragraph in which nothing is left
        else:
            shown.append(token)
    return Markup(MARKDOWN.renderer.render(shown, MARKDOWN.options, {}))


def _inline(children, folder, explain):
    """Returns what a line consists of, without pictures and links to what is not on the page."""
    found, links = [], []
    for child in children:
        if child.type == "link_open":
            links.append(target(child.attrs["href"], folder))
            if links[-1]:
                found.append(child.copy(attrs={"href": links[-1]}))
        elif child.type == "link_close":
            if links.pop():
                found.append(child)
        elif child.type == "text" and explain and not any(links):
            found.append(_made(cut(explain(child.content))))
        elif child.type == "text":
            found.append(_made(cut(escape(child.content))))
        elif child.type == "code_inline":
            short = ' class="whole"' if len(child.content) < 20 else ""
            found.append(_made(f"<code{short}>{cut(escape(child.content))}</code>"))
        elif child.type != "image":  # the page draws its own
            found.append(child)
    return found


def _made(html):
    return Token("html_inline", "", 0, content=str(html))
