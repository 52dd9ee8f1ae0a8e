"""What clients do, recorded: producers, readers and the audit, each in a process of its own."""
