#!/bin/bash
# As the entry point of the official zookeeper image: ZOO_* make /conf/zoo.cfg; data in /data, the log in /datalog.
set -e
configuration=${ZOO_CONF_DIR:-/conf} data=${ZOO_DATA_DIR:-/data} log=${ZOO_DATA_LOG_DIR:-/datalog}
if [ ! -f "$configuration/zoo.cfg" ]; then
    {
        echo "dataDir=$data"
        echo "dataLogDir=$log"
        echo "tickTime=${ZOO_TICK_TIME:-2000}"
        echo "initLimit=${ZOO_INIT_LIMIT:-5}"
        echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
        echo "autopurge.snapRetainCount=${ZOO_AUTOPURGE_SNAPRETAINCOUNT:-3}"
        echo "autopurge.purgeInterval=${ZOO_AUTOPURGE_PURGEINTERVAL:-0}"
        echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
        echo "standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}"
        echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
        [ -z "${ZOO_4LW_COMMANDS_WHITELIST:-}" ] || echo "4lw.commands.whitelist=$ZOO_4LW_COMMANDS_WHITELIST"
        for server in ${ZOO_SERVERS:-server.1=localhost:2888:3888;2181}; do echo "$server"; done
        for setting in ${ZOO_CFG_EXTRA:-}; do echo "$setting"; done
    } >"$configuration/zoo.cfg"
fi
[ -f "$data/myid" ] || echo "${ZOO_MY_ID:-1}" >"$data/myid"
# shellcheck disable=SC2086 # several options
exec java -Dzookeeper.log.dir=/logs -Dlog4j.configuration=file:/etc/kafka/docker/log4j.properties \
    ${JVMFLAGS:--Xmx${ZK_SERVER_HEAP:-1000}m -XX:+UseSerialGC -XX:TieredStopAtLevel=1} \
    -cp "$(printf '%s:' /opt/kafka/libs/*.jar)" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$configuration/zoo.cfg"
