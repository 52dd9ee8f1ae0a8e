"""This folder starts real servers for tests of the contract and of the system."""
