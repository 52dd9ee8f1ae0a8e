"""These tests are of how clients write down what they sent and read."""
