"""The tables of predictions beside published measurements; shared/published makes the records."""

import json
import statistics

from shared.common.scripts import ROOT
from shared.lessons import guide, markdown, stored
from shared.published.command import HEADING, error, table
from shared.published.rows import SOURCES

GUIDE = "https://huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one"


def guides():
    """Returns the rows of Hugging Face's guide as in 2022, from its own records."""
    return [
        {
            "what": row.words,
            "counter": "reserved",
            "published_gb": guide.theirs(row),
            "reserved_gb": then["train"]["device_reserved_gb"],
        }
        for row, (_, then) in zip(guide.ROWS, guide.records(), strict=True)
    ]


def part(folder):
    """Returns the tables of all sources, in Markdown."""
    records = json.loads(stored.PUBLISHED.read_text())
    lines = []
    for source in SOURCES:
        mine = [r for r in records if r["source"] == source.title]
        lines += [f"[{source.title}]({source.url}). {source.note}", ""]
        lines += [*markdown.table([HEADING, *table(mine)]), ""]
    lines += [
        f"[Hugging Face: training on one GPU]({GUIDE}). BERT-large, 512 tokens, V100 with 16 GB; "
        "`nvidia-smi` less the kernels. PyTorch of January 2022 is imitated; more on "
        "[page 11](../11_llm/README.md#beside-a-published-measurement).",
        "",
        *markdown.table([HEADING, *table(guides())]),
        "",
    ]
    r = records[0]
    made = (
        f"Predicted with `{r['command']}`; torch {r['versions']['torch']}, {r['date']}, commit "
        f"{r['git_commit']}; records in `{stored.PUBLISHED.relative_to(ROOT)}`."
    )
    return "\n".join([*lines, *markdown.folded(markdown.ORIGIN, [made])])


def summary(folder):
    """Returns a sentence about the errors of the sources whose settings are known."""
    records = json.loads(stored.PUBLISHED.read_text())
    known = {source.title for source in SOURCES if source.complete}
    errors = [abs(error(r)) for r in records if r["source"] in known]
    errors += [abs(error(r)) for r in guides()]
    near = sum(e <= 0.05 for e in errors)
    sources = len(SOURCES) + 1
    return (
        f"{len(records) + len(guides())} figures of {sources} sources. Of the {len(errors)} whose "
        f"settings are known or nearly so, {near} are predicted within 5 %; the median error is "
        f"{statistics.median(errors):.1%}."
    )
