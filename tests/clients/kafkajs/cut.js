// One send to the leaders of two partitions: node cut.js BOOTSTRAP TOPIC
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic] = process.argv.slice(2)
const producer = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING }).producer()
const messages = [{ value: 'v', partition: 0 }, { value: 'v', partition: 1 }]

async function main () {
  await producer.connect()
  await producer.send({ topic, messages })
  await producer.disconnect()
}

main()
