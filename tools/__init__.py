"""This folder has the programs that write files of this repository: pages, locks, and tables of Kafka's settings."""
