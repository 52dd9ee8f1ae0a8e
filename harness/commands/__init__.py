"""The commands of `prozess`, a file per group of them. Each imports little until it is called, so that help is fast."""
