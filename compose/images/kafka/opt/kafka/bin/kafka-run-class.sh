#!/bin/bash
# What a container needs of Kafka's own kafka-run-class.sh: the same environment. Options of daemons are ignored.
while [[ $1 == -* ]]; do shift; done
home=/opt/kafka
# One sorted list, the same at every start: a class-data archive is valid for exactly one class path.
class_path=${CLASSPATH:+$CLASSPATH:}$(printf '%s:' $home/libs/*.jar)
if [ -z "${KAFKA_LOG4J_OPTS:-}" ]; then
    name=tools-log4j
    [ "$1" != kafka.Kafka ] || name=log4j
    for directory in $home/config /etc/kafka/docker; do
        if [ -e $directory/${name}2.yaml ]; then
            KAFKA_LOG4J_OPTS=-Dlog4j2.configurationFile=$directory/${name}2.yaml
            break
        elif [ -e $directory/$name.properties ]; then
            KAFKA_LOG4J_OPTS=-Dlog4j.configuration=file:$directory/$name.properties
            break
        fi
    done
fi
: "${KAFKA_HEAP_OPTS:=-Xmx256M}" "${LOG_DIR:=$home/logs}"
: "${KAFKA_JVM_PERFORMANCE_OPTS:=-server -XX:+UseSerialGC -XX:TieredStopAtLevel=1}"
archive=
[ ! -e $home/kafka.jsa ] || archive="-XX:SharedArchiveFile=$home/kafka.jsa -Xshare:auto -Xlog:cds=off"
# shellcheck disable=SC2086 # each is several options
exec java $KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS $archive -Djava.awt.headless=true $KAFKA_JMX_OPTS \
    -Dkafka.logs.dir="$LOG_DIR" $KAFKA_LOG4J_OPTS -cp "${class_path%:}" $KAFKA_OPTS "$@"
