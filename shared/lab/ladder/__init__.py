"""`python -m shared ladder`: measure the scripts, one after the other."""
