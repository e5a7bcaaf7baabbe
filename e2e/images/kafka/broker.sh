#!/bin/sh
# Runs a Kafka broker whose clients reach it at $ADVERTISED, and those in its own pod at 127.0.0.1:9093: not every network leads a pod that asks for its
# service back to itself. A broker that was killed starts again, with its data, without an end of other processes of the container.
set -eu
cat >"$DATA/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9091
listeners=CLIENT://:9092,INSIDE://127.0.0.1:9093,CONTROLLER://127.0.0.1:9091
advertised.listeners=CLIENT://$ADVERTISED,INSIDE://127.0.0.1:9093
listener.security.protocol.map=CLIENT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INSIDE
controller.listener.names=CONTROLLER
log.dirs=$DATA/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.enable=false
PROPERTIES
java="java -Xmx400m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp /opt/kafka/*"
set -f
$java kafka.tools.StorageTool format --ignore-formatted -t MkU3OEVBNTcwNTJENDM2Qg -c "$DATA/server.properties"
while true; do
	$java kafka.Kafka "$DATA/server.properties" &
	echo $! >"$DATA/pid"
	wait $! || true
done
