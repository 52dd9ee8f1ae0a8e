"""This folder has the stages of a run that touch a cluster or a history: run, check and judge. Each can be repeated
alone."""
