"""Which published measurements are predicted, with all that is known of their settings.

Nothing is chosen so that a figure comes out right. What a source does not say, and what was assumed
instead, is in its note.
"""

from shared.evidence.published import article, lightning_pages, others, pytorch, step_by_step

SOURCES = (
    *article.SOURCES,
    *pytorch.SOURCES,
    *lightning_pages.SOURCES,
    *others.SOURCES,
    *step_by_step.SOURCES,
)
