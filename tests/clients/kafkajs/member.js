// One member of a group that reads a view: node member.js BOOTSTRAP GROUP TOPIC
// Says what it gets as tests/support/view_member.py does; leaves its group when its input ends.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({
  groupId, sessionTimeout: 6000, heartbeatInterval: 500, metadataMaxAge: 1000, maxWaitTimeInMs: 200
})
const tell = (...line) => process.stdout.write(JSON.stringify(line) + '\n')

async function main () {
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    tell('assigned', (payload.memberAssignment[topic] || []).sort((a, b) => a - b)))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, uncommittedOffsets, isStale }) => {
      for (const message of batch.messages) {
        if (isStale()) return
        tell('record', batch.partition, Number(message.offset), String(message.key), String(message.value))
        resolveOffset(message.offset)
      }
      await commitOffsetsIfNecessary(uncommittedOffsets())
      await heartbeat()
    }
  })
}

process.stdin.resume()
process.stdin.on('end', async () => {
  await consumer.disconnect()
  process.exit(0)
})
main().catch(error => {
  tell('error', String(error))
  process.exit(1)
})
