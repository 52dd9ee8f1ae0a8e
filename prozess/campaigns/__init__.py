"""This folder runs many trials one after the other: campaigns, matrices, scenarios, and the search for a smaller plan."""
