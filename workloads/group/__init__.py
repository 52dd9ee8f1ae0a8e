"""Members of consumer groups are here, with the observer that looks up what their groups have committed."""
