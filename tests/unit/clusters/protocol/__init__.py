"""These tests are of the requests and answers that one node and its client exchange."""
