"""Grading of a learner's script: one judge of its code, training and memory, and its sentences."""
