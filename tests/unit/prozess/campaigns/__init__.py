"""These tests are of campaigns, matrices and scenarios, which are many runs."""
