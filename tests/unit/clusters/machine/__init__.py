"""These tests are of namespaces, processes and guardians on this machine."""
