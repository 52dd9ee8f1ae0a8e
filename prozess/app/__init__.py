"""This folder has everything about one run: the command line, the stages of a run, and the wiring of the packages."""
