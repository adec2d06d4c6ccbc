"""Causal language modeling with a mixture of experts: each token takes a few of many MLPs."""

import functools

from shared.run import cli
from shared.run.errors import UserError
from shared.text import models
from shared.text.roads.causal import Causal


class Mixture(Causal):
    """The task of next-token prediction with a mixture of experts."""

    tiny = models.TINY_MOE
    does, such_as = "predict the next token with experts", "allenai/OLMoE-1B-7B-0924"
    presets = {
        "tiny": {"model": models.TINY_MOE, "data": "reviews"},
        "full": {"model": such_as, "data": "imdb"},
    }
    model_help = f"{tiny}, or folder or Hugging Face id of a model that can {does}"

    def choose(self, args):
        """Set the options as Causal does; refuse models without experts."""
        super().choose(args)
        if not hasattr(args.config.get_text_config(), "router_aux_loss_coef"):
            lacks = f"{args.config.model_type} models have no experts, or no loss of a router"
            raise UserError(f"--model {args.model}: {lacks}; choose, for example, {self.such_as}")


TASK = Mixture()
parse = functools.partial(cli.parse, TASK)
