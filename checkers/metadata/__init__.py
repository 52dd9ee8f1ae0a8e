"""What the controllers' log says of a partition follows from what it stated before: the rules of the KIPs, each in a file."""
