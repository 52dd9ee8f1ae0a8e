"""These modules ask nodes by Kafka's and ZooKeeper's own protocols, one node at a time, and administer a cluster as a
whole."""
