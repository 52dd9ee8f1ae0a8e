from tests.support.servers.clusters import cluster as cluster
