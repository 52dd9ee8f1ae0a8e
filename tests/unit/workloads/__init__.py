"""These tests are of the clients that write and read, and of what they record."""
