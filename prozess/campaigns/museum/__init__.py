"""`prozess museum`: known defects, each shown on a release that has it, and looked for in vain on one that does not."""
