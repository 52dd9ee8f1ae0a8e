"""One run stands here: how a command begins and ends, the stages of a run, and what puts its parts together."""
