"""This folder imports histories from other programs, exports histories to them, and generates histories."""
