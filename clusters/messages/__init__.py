"""A proxy that understands the frames of Kafka's protocol, and what puts it into the links of a cluster."""
