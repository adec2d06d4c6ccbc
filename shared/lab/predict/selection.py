"""The scripts that a command line names, and the runs of them that it asks for."""

import dataclasses
import types
from pathlib import Path

import torch

from shared.images import models
from shared.lab.predict import cases
from shared.lab.predict.jobs import Wanted
from shared.lab.records import scripts
from shared.run.errors import UserError
from shared.run.record import ROOT

ENDINGS = (".py", ".ipynb")  # what resolve() leaves of paths of others


def resolve(text):
    """Return the names of scripts, or the path, that a word of the command line stands for.

    A stage or side road has the same name by path, from any folder: ./06_sgd/train.py is
    06_sgd/train. Names and ranges that commas separate are returned one by one, as they are.
    """
    path = Path(text)
    # The name of a file may have a comma, too.
    if not path.exists() and "," in text:
        return [name for part in text.split(",") for name in resolve(part.strip())]
    resolved = path.resolve()
    if resolved.is_relative_to(ROOT):
        name = str(resolved.relative_to(ROOT)).removesuffix(".py")
        folders = {script.folder for script in scripts.every().values()}
        if name in scripts.every() or name in folders:
            return [name]
    # From another folder, 06_sgd/train.py is a name, unless that folder has such a file.
    is_name = text.removesuffix(".py") in scripts.every()
    return [text.removesuffix(".py") if is_name and not path.exists() else text]


def names_own_script(words):
    """Return whether words of a command line name a script that is none of this repository."""
    before = words[: words.index("--")] if "--" in words else words
    return any(name.endswith(ENDINGS) for word in before for name in resolve(word))


def model(name):
    """Return the name of a model; if it is a folder, its absolute path."""
    # The scripts run in the root of the repository, where a relative path would lead elsewhere.
    return str(Path(name).resolve()) if Path(name).is_dir() and Path.cwd() != ROOT else name


def suited(args):
    """Return the selected scripts of this repository that the options apply to.

    Raises:
        UserError: an option is for images, but a named script trains on texts, or the reverse.
    """
    named = scripts.select(args.stages, "stage") if args.stages else None
    chosen = scripts.plain(named) if args.plain else named or scripts.stages()
    if args.side_roads:
        chosen = scripts.with_side_roads(chosen)
    wanted_units = _units(args, named)
    units = {name: scripts.get(name).load().TASK.unit for name in chosen}
    unsuited = [name for name in chosen if wanted_units - {units[name]}]
    # Without names, options choose: the scripts that they are not for are just left out.
    if unsuited and (named or len(unsuited) == len(chosen)):
        first = unsuited[0]
        wanted_unit = (wanted_units - {units[first]}).pop()
        raise UserError(f"an option is for {wanted_unit}, but {first} trains on {units[first]}")
    suitable = [name for name in chosen if name not in unsuited]
    if args.image_px:
        presets = (scripts.get(name).load().TASK.presets[args.preset]["model"] for name in suitable)
        for name in dict.fromkeys([*presets] if args.models == [None] else args.models):
            if args.image_px % (patch := _patch_px(name)):
                raise UserError(f"--image-px {args.image_px}: {name} takes a multiple of {patch}")
    return suitable


def _patch_px(name):
    """Return the edge, in pixels, of the patches into which a model divides an image."""
    args = types.SimpleNamespace(model=name, image_px=models.image_px(name))
    with torch.device("meta"):
        return models.vit(args, types.SimpleNamespace(classes=["0", "1"])).patch_size


def _units(args, named):
    """Return the units of the tasks that options are for: "images", "texts", both or neither."""
    of_images = [model.startswith("vit_") for model in args.models if model]
    units = set()
    if args.image_px or any(of_images):
        units.add("images")
    if args.max_length or args.one_by_one:
        units.add("texts")
    if not named and not all(of_images):  # a named script may take such a model for images
        units.add("texts")
    return units


def runs(args):
    """Return the runs that options ask for: [(Script, Wanted), ...]."""
    every = []
    for model in args.models:
        settings = Wanted(
            preset=args.preset,
            model=model,
            image_px=args.image_px,
            max_length=args.max_length,
            batch_size=args.batch_size,
            micro_batch_size=args.micro_batch_size,
            devices=args.devices,
            trust_remote_code=args.trust_remote_code,
            card=args.card,
            expandable=args.expandable,
        )
        for script in map(scripts.get, args.names):
            every += _steps(script, settings) if args.one_by_one else [(script, settings)]
    return every


def _steps(script, settings):
    """Return the runs from the first script of a folder to the last, with a technique more each."""
    if script.name != cases.of("one_by_one")[-1].script:  # the last has all techniques
        return []
    steps = cases.one_by_one(settings.devices or script.load().DEVICES)
    return [
        (step.changed_script, dataclasses.replace(settings, technique=step.settings.technique))
        for step in steps
    ]
