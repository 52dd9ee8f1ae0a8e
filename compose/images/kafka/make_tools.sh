#!/bin/bash
# make_tools.sh VERSION: the command line tools under the names that the official image gives them.
set -e
cd /opt/kafka/bin
tools=org.apache.kafka.tools
tool() { printf '#!/bin/bash\nexec /opt/kafka/bin/kafka-run-class.sh %s "$@"\n' "$2" >"$1.sh"; }
tool kafka-topics $tools.TopicCommand
tool kafka-consumer-groups $tools.consumer.group.ConsumerGroupCommand
tool kafka-get-offsets $tools.GetOffsetShell
tool kafka-log-dirs $tools.LogDirsCommand
tool kafka-leader-election $tools.LeaderElectionCommand
tool kafka-transactions $tools.TransactionsCommand
tool kafka-metadata-quorum $tools.MetadataQuorumCommand
tool kafka-features $tools.FeatureCommand
tool kafka-reassign-partitions $tools.reassign.ReassignPartitionsCommand
tool kafka-verifiable-producer $tools.VerifiableProducer
tool kafka-verifiable-consumer $tools.VerifiableConsumer
tool kafka-broker-api-versions $tools.BrokerApiVersionsCommand
tool kafka-producer-perf-test $tools.ProducerPerformance
tool kafka-console-consumer $tools.consumer.ConsoleConsumer
tool kafka-cluster $tools.ClusterTool
tool kafka-storage kafka.tools.StorageTool
case "$1" in
3.*) tool kafka-console-producer kafka.tools.ConsoleProducer
    tool kafka-configs kafka.admin.ConfigCommand
    tool kafka-dump-log kafka.tools.DumpLogSegments ;;
*) tool kafka-console-producer $tools.ConsoleProducer
    tool kafka-configs $tools.ConfigCommand
    tool kafka-dump-log $tools.DumpLogSegments ;;
esac
chmod 755 ./*.sh
