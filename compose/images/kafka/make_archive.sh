#!/bin/bash
# The short life of a single node, recorded as a class-data archive: brokers then start with half the CPU time. The official
# image does the same. Without an archive the image works, only slower: that is said, and no error.
mkdir -p /tmp/archive && cd /tmp/archive || exit 1
sed 's,^log.dirs=.*,log.dirs=/tmp/archive/data,' /etc/kafka/docker/server.properties >server.properties
flags='-XX:+UseSerialGC -XX:TieredStopAtLevel=1' # an archive fits only the collector it was made with
KAFKA_JVM_PERFORMANCE_OPTS=$flags /opt/kafka/bin/kafka-run-class.sh kafka.tools.StorageTool format \
    -t 5L6g3nShT-eMCtK--X86sw -c server.properties >/dev/null || exit 1
KAFKA_HEAP_OPTS=-Xmx256m KAFKA_JVM_PERFORMANCE_OPTS="$flags -XX:ArchiveClassesAtExit=/opt/kafka/kafka.jsa" \
    /opt/kafka/bin/kafka-server-start.sh server.properties >log 2>&1 &
pid=$!
for _ in $(seq 300); do
    grep -qE 'Kafka *Server.*started' log && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.2
done
KAFKA_HEAP_OPTS=-Xmx128m /opt/kafka/bin/kafka-topics.sh --bootstrap-server localhost:9092 --create --topic t >/dev/null 2>&1
kill $pid
wait $pid
[ -s /opt/kafka/kafka.jsa ] || { tail -n 20 log; echo 'no class-data archive: brokers will start slower'; }
rm -rf /tmp/archive
exit 0
