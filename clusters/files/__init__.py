"""These modules read what brokers, controllers and ZooKeeper wrote to their disks."""
