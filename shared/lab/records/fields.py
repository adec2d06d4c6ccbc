"""The fields of a record, which fields.toml describes."""

import tomllib
from pathlib import Path

FIELDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
