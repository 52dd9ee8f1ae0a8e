"""These modules answer the facts that the rules of the guarantee table ask for, from a cell's configuration and from
the evidence."""
