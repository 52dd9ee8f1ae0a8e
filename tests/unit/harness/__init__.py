"""These tests are of the harness: trials, histories, guarantees and reports."""
