"""These modules fetch, build and cache what a cluster needs to run: jars, Java, tools and agents."""
