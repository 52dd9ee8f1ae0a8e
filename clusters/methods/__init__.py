"""Calls of a server's own methods, delayed, paused or broken by Byteman: its rules, its agent, and Kafka's class files."""
