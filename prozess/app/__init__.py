"""The application stands on everything else: the command line, the stages of a run, and whatever runs many trials."""
