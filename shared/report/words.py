"""The words that explain themselves on the page, as the tables of shared/README.md explain them."""

import dataclasses
import functools
import re

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from shared.records.scripts import ROOT

SOURCE = ROOT / "shared" / "README.md"
TABLES = ("word | means", "category | is", "term | means")
# In a sentence these mostly mean something else: "the inputs of a block" are not the batch.
ONLY_ALONE = ("inputs",)
ONLY_ONE = ("update",)  # "updates" is mostly what an optimizer does to weights


@dataclasses.dataclass(frozen=True)
class Word:
    """A word of the glossary, how it is written, and its explanation in Markdown."""

    forms: tuple
    meaning: str

    @property
    def name(self):
        return ", ".join(self.forms)

    @property
    def id(self):
        """The id of its explanation on the page."""
        return f"word-{re.sub(r'[^a-z0-9]+', '-', self.forms[0].lower())}"

    @property
    def html(self):
        return Markup(MarkdownIt().renderInline(self.meaning))

    @property
    def pattern(self):
        """A regular expression for it in a text: also at the start of a sentence, one or many."""
        return "|".join(map(_pattern, self.forms))


@functools.cache
def glossary():
    """Returns the Words in alphabetical order.

    Words that stand in code there, such as `null`, are of records and not of this page.
    """
    text, found = SOURCE.read_text(), []
    for head in TABLES:
        rest = text.split(f"| {head} |\n|---|---|\n")[1]
        for row in rest.partition("\n\n")[0].splitlines():
            name, meaning = row.strip("| ").split(" | ")
            if "`" not in name:
                found.append(Word(tuple(name.split(", ")), meaning))
    return sorted(found, key=lambda word: word.name.lower())


def button(text, word=None):
    """Returns a text as HTML that explains itself, by a Word or the one that is written so."""
    word = word or next(w for w in glossary() if text in w.forms)
    html = '<button class="word" type="button" aria-describedby="{}">{}</button>'
    return Markup(html).format(word.id, text)


class Marker:
    """Makes the words of one section buttons, each where it stands first."""

    def __init__(self):
        self.seen = set()

    def html(self, text):
        """Returns a text as HTML; words become buttons."""
        found, at = [], 0
        for match in _pattern_of_all().finditer(text):
            word = _longest_first()[match.lastindex - 1]
            alone = match[0] == text.strip()
            if word not in self.seen and (alone or word.forms[0] not in ONLY_ALONE):
                self.seen.add(word)
                found += [escape(text[at : match.start()]), button(match[0], word)]
                at = match.end()
        return Markup("").join([*found, escape(text[at:])])


def _pattern(form):
    stem = form[:-1] if form.endswith("s") and not form.endswith("ss") else form
    first = f"[{stem[0]}{stem[0].upper()}]" if stem.islower() else re.escape(stem[0])
    many = "" if form in ONLY_ONE else "(?:e?s)?"
    return f"{first}{re.escape(stem[1:])}{many}"


@functools.cache
def _longest_first():
    return sorted(glossary(), key=lambda word: -max(map(len, word.forms)))


@functools.cache
def _pattern_of_all():
    """One group for each word, so that `meta device` is found before `device`."""
    groups = "|".join(f"({word.pattern})" for word in _longest_first())
    return re.compile(rf"(?<![\w-])(?:{groups})(?![\w-])")
