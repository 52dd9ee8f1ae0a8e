// A shop that sends a number of orders, and prints what becomes of each: the lines of Kafka's VerifiableProducer.
//
//     node shop.js SERVERS TOPIC COUNT ACKS
//
// Values are "PREFIX.n"; the prefix comes from the environment. Nothing else is written to standard output.
const { Kafka, logLevel } = require("kafkajs");

const [servers, topic, count, acks] = process.argv.slice(2);
const prefix = process.env.PROZESS_PREFIX;
const durable = acks === "all";

const kafka = new Kafka({
  clientId: "shop",
  brokers: servers.split(","),
  logLevel: logLevel.NOTHING,
  connectionTimeout: 3000,
  requestTimeout: 10000,
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 30 },
});
const producer = kafka.producer({ idempotent: durable, maxInFlightRequests: 1, allowAutoTopicCreation: false });

function say(name, more = {}) {
  // A pipe is written to at once (nodejs.org, "A note on process I/O"): what was stated survives the program.
  process.stdout.write(`${JSON.stringify({ timestamp: Date.now(), name, ...more })}\n`);
}

async function order(number) {
  const key = `customer-${number % 7}`;
  const value = `${prefix}.${number}`;
  say("producer_send", { key, value, topic });
  try {
    const [told] = await producer.send({ topic, acks: durable ? -1 : Number(acks), messages: [{ key, value }] });
    say("producer_send_success", { key, value, topic, partition: told.partition, offset: Number(told.baseOffset) });
  } catch (error) {
    say("producer_send_error", { key, value, topic, exception: error.name, message: error.message });
  }
}

async function main() {
  await producer.connect();
  say("startup_complete");
  for (let number = 0; number < Number(count); number += 1) {
    await order(number);
  }
  await producer.disconnect();
  say("shutdown_complete");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
