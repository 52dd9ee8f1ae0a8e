"""This folder generates histories that are valid but for the anomalies that were planted in them."""
