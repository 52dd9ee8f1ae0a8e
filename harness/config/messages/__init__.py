"""Messages of Kafka's protocol: which one a trial means, what is done to it, and how its fields are read."""
