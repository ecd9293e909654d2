// KafkaJS with default settings: node plain.js BOOTSTRAP GROUP TOPIC COUNT [USER PASSWORD]
// Reads a topic as a member of a group and writes the lines of tests/support/plain_reader.py.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic, count, username, password] = process.argv.slice(2)
const sasl = username ? { mechanism: 'plain', username, password } : undefined
const kafka = new Kafka({ brokers: bootstrap.split(','), sasl, logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({ groupId })
const values = new Set()
const tell = (...line) => process.stdout.write(JSON.stringify(line) + '\n')

async function end () {
  await consumer.disconnect()
  process.exit(0)
}

async function main () {
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    tell('error', String(payload.error))
    end()
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => {
      values.add(String(message.value))
      tell('value', String(message.value))
      if (values.size === Number(count)) setImmediate(end)
    }
  })
}

main().catch(error => {
  tell('error', String(error))
  process.exit(0)
})
