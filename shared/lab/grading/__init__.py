"""Grading of a learner's script: comparisons of its code and of its training with the stage."""
