"""These tests are of the formats of files that `prozess validate` reads."""
