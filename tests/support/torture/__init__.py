"""This folder kills the harness at random moments and looks at what is left."""
