"""`python -m shared.ladder`: measures the scripts, one after the other."""
