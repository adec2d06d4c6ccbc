"""Grading of a learner's script: is it the stage, and is it the same training?"""
