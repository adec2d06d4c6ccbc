"""Code for all scripts: measurement and prediction of memory, and what the stages import.

README.md in this folder describes each subfolder. Nothing in here is specific to one stage.
"""
