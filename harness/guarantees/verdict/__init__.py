"""These modules judge what checkers found: they apply the table's rules, decide the verdict, and put it into sentences."""
