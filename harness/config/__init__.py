"""Everything that you may set: configurations of clients, topics and brokers, what faults may do to a node, and
clusters that exist already."""
