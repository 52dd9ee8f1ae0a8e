"""The reports of one run: report.html, junit.xml and summary.md, and what the terminal shows."""
