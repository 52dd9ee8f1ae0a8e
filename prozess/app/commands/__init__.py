"""This folder has the commands of `prozess`. Each imports little until it is called, so help is fast."""
