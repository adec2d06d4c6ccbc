"""The game "Make it fit": scripts that run out of memory on a card, and a judge of their mends."""
