"""This package turns recorded rows into Parquet tables, reads them back, and proves that a stored run's files are what
was written."""
