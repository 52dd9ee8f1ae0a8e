"""`prozess validate`: what people's own configuration files promise, predicted by the guarantee table and put on trial."""
