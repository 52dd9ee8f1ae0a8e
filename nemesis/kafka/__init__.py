"""These faults are changes that Kafka itself is asked for: elections, reassignments, configuration changes and rolling
restarts."""
