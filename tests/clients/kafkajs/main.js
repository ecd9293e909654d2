// KafkaJS with nothing set but the bootstrap servers: node main.js BOOTSTRAP PREFIX
// Prints what happened as one line of JSON; ends with a status other than 0 when something failed.
const { Kafka, logLevel, CompressionTypes } = require('kafkajs')

const [bootstrap, prefix] = process.argv.slice(2)
const topic = `${prefix}-topic`
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const PARTITIONS = 4
const RECORDS = 40
const LIMIT_MS = 90000

setTimeout(() => fail(new Error(`took longer than ${LIMIT_MS} ms`)), LIMIT_MS).unref()

function fail (error) {
  console.error(error.stack || String(error))
  process.exit(1)
}

async function waitFor (condition, what, limitMs = 30000) {
  const end = Date.now() + limitMs
  while (!condition()) {
    if (Date.now() > end) throw new Error(`waited ${limitMs} ms for ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

async function create (admin) {
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: PARTITIONS }] })
  const { brokers } = await admin.describeCluster()
  return brokers.map(({ nodeId, host, port }) => ({ nodeId, host, port }))
}

async function produce (producer) {
  const message = i => ({ key: `${i}`, value: `value ${i}`, partition: i % PARTITIONS })
  const all = [...Array(RECORDS).keys()].map(message)
  await producer.send({ topic, acks: -1, messages: all.slice(0, 20) })
  await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages: all.slice(20, 30) })
  await producer.send({ topic, acks: 0, messages: all.slice(30) })
  return all.length
}

// Two members of one group; the second joins later, so that partitions move.
async function rebalance (seen, assigned) {
  const members = []
  for (const name of ['first', 'second']) {
    const consumer = kafka.consumer({ groupId: `${prefix}-group`, rebalanceTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 200 })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      assigned[name] = (payload.memberAssignment[topic] || []).length
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => { seen.add(message.value.toString()) } })
    members.push(consumer)
    if (name === 'first') await waitFor(() => seen.size >= RECORDS, 'all records')
  }
  await waitFor(() => assigned.first === PARTITIONS / 2 && assigned.second === PARTITIONS / 2, 'half the partitions each')
  const even = { ...assigned }
  for (const consumer of members) await consumer.disconnect()
  return even
}

async function transactions () {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: `${prefix}-id` })
  await producer.connect()
  for (const end of ['abort', 'commit']) {
    const transaction = await producer.transaction()
    await transaction.send({ topic: `${topic}-t`, messages: [{ value: end }] })
    await transaction.sendOffsets({
      consumerGroupId: `${prefix}-offsets`,
      topics: [{ topic, partitions: [{ partition: 0, offset: end === 'commit' ? '7' : '3' }] }]
    })
    await transaction[end]()
  }
  await producer.disconnect()
}

async function readCommitted () {
  const seen = []
  const consumer = kafka.consumer({ groupId: `${prefix}-committed`, readUncommitted: false, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic: `${topic}-t`, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => { seen.push(message.value.toString()) } })
  await waitFor(() => seen.length > 0, 'the committed record')
  await consumer.disconnect()
  return seen
}

async function main () {
  const admin = kafka.admin()
  await admin.connect()
  const brokers = await create(admin)
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic: `${topic}-t`, numPartitions: 1 }] })
  const producer = kafka.producer()
  await producer.connect()
  const produced = await produce(producer)
  await producer.disconnect()
  const seen = new Set()
  const assigned = await rebalance(seen, {})
  await transactions()
  const committed = await readCommitted()
  const offsets = await admin.fetchOffsets({ groupId: `${prefix}-offsets`, topics: [topic] })
  const { groups } = await admin.listGroups()
  const description = await admin.describeGroups([`${prefix}-group`])
  await admin.deleteTopics({ topics: [topic, `${topic}-t`] })
  await admin.disconnect()
  console.log(JSON.stringify({
    produced,
    consumed: seen.size,
    assigned,
    committed,
    offset: offsets[0].partitions.find(({ partition }) => partition === 0).offset,
    listed: groups.map(({ groupId }) => groupId).filter(id => id.startsWith(prefix)).sort(),
    state: description.groups[0].state,
    brokers
  }))
  process.exit(0)
}

main().catch(fail)
