"""Programs to begin with: each block is whole, and is run by `tests/public/test_recipes.py`.

    >>> import kafka_share_proxy.recipes
    >>> help(kafka_share_proxy.recipes)  # doctest: +SKIP

All of them are at-least-once unless they say more: after a crash, records that were not committed are delivered again.
`work` is yours, an async function of one record. `options` are those of `open_consumer`: group, topics, and so on.

A pool of workers, and a revoke that waits for them
===================================================

One task for each partition works on what a poll brought, in order; meanwhile the partition is paused and the others go
on. A member keeps a partition to be revoked until its records are done and committed, so that the next owner begins
after them. Lost partitions are already owned by other members: their work ends.

    import trio
    from kafka_share_proxy import PartitionLostError, TopicPartition, open_consumer

    async def worker_pool(bootstrap, work, **options):
        busy: dict[TopicPartition, trio.CancelScope] = {}
        finished: dict[TopicPartition, int] = {}

        async def process(partition, records):
            with busy[partition]:
                for record in records:
                    await work(record)
                    finished[partition] = record.offset + 1
            del busy[partition]

        async with open_consumer(bootstrap, **options) as consumer, trio.open_nursery() as workers:
            while True:
                consumer.resume(consumer.paused - busy.keys())
                result = await consumer.poll(1)
                for partition in result.records.partitions:
                    consumer.pause([partition])
                    busy[partition] = trio.CancelScope()
                    workers.start_soon(process, partition, list(result.records.of(partition)))
                done = dict(finished)
                finished.clear()
                try:
                    await consumer.commit(done)
                except PartitionLostError:
                    pass  # the new owner processes these again; the others are committed
                consumer.delay_revoke(busy.keys() & result.to_be_revoked)
                for partition in busy.keys() & result.lost:
                    busy[partition].cancel()

Records of one partition finished in any order
==============================================

Slow records do not hold up the others, not even of their own partition: what is committed says exactly which are done,
and after a crash only the others come again. `limit` bounds what is worked on at a time.

    import trio
    from kafka_share_proxy import open_consumer

    async def any_order(bootstrap, work, limit=100, **options):
        slots = trio.Semaphore(limit)

        async with open_consumer(bootstrap, individual_commits=True, **options) as consumer:

            async def process(record):
                async with consumer.work(record):  # done when the block ends without an error
                    await work(record)
                slots.release()

            async with trio.open_nursery() as workers:
                while True:
                    result = await consumer.poll(1, max_records=limit)
                    for record in result.records:
                        await slots.acquire()
                        workers.start_soon(process, record)
                    await consumer.commit()

The newest records first after a crash
======================================

The backlog of the crash is read in parallel with the newest records, and order is given up between the two (KIP-333).
Give late records to a part of the program that can use them. Committed offsets never run ahead of what is not done.

    from kafka_share_proxy import Flow, open_consumer

    async def newest_first(bootstrap, work, work_late, **options):
        async with open_consumer(bootstrap, enable_parallel_rebalance=True, **options) as consumer:
            while True:
                for record in (await consumer.poll(1)).records:
                    await (work if record.flow is Flow.MAIN else work_late)(record)
                await consumer.commit()

Consume, transform, produce
===========================

Exactly once: what was made of the records, and the offset after them, become visible together or not at all. The
producer is confluent-kafka's, with a transactional.id; its calls wait, so they run in a thread. Consumers of `target`
should use read_committed.

    import trio
    import confluent_kafka
    from kafka_share_proxy import open_consumer

    async def transform(bootstrap, producer, target, work, **options):
        await trio.to_thread.run_sync(producer.init_transactions)
        async with open_consumer(bootstrap, read_committed=True, **options) as consumer:
            while True:
                result = await consumer.poll(1)
                if not result.records:
                    continue
                producer.begin_transaction()
                for record in result.records:
                    producer.produce(target, await work(record), key=record.key)
                offsets = [
                    confluent_kafka.TopicPartition(*partition, position.offset)
                    for partition, position in result.records.next_offsets().items()
                ]
                member = consumer.group_metadata()  # of now: a broker refuses a former member
                await trio.to_thread.run_sync(producer.send_offsets_to_transaction, offsets, member)
                await trio.to_thread.run_sync(producer.commit_transaction)
"""
