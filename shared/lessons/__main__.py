"""Run `python -m shared.lessons`."""

from shared.lessons.pages import main

main()
