"""These tests are of the readers of files that brokers, controllers and ZooKeeper write."""
