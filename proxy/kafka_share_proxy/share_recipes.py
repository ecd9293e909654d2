"""Programs of share groups to begin with: each block is whole, and is run by `tests/public/test_share_recipes.py`.

`work` is yours, an async function of one record; `options` are those of `open_share_consumer`: group, topics, others.

A share worker whose job outlasts the lock
==========================================

A record is locked for its worker for 30 s, or the time that the group sets, and then goes to another. Here its lock is
renewed until the job is done (KIP-1222), however long that takes, while polling continues for the other workers. A job
that fails releases its record, which is delivered again, up to five times or the group's limit. A lock that is lost all
the same, since a connection broke or a broker went, ends the job: another member may be at it. `limit` bounds what is
worked on at a time; as many more wait for a worker, with their locks renewed as well, and then nothing is fetched.

    import trio
    from kafka_share_proxy import LockLostError, open_share_consumer

    async def share_worker(bootstrap, work, limit=100, **options):
        slots = trio.Semaphore(limit)

        async def job(consumer, record):
            try:
                async with consumer.work(record), slots:
                    await work(record)
            except LockLostError:
                pass  # it is delivered again, or was already
            except Exception as error:
                print(f"{record.topic}-{record.partition} at {record.offset} is released: {error!r}")

        options |= {"acquire_mode": "record_limit", "max_poll_records": limit, "held_records_max": 2 * limit}
        options |= {"acknowledgement_mode": "explicit"}
        async with open_share_consumer(bootstrap, **options) as consumer, trio.open_nursery() as jobs:
            while True:
                for record in await consumer.poll():
                    jobs.start_soon(job, consumer, record)

A worker that delays the next attempt
=====================================

A record whose job fails is released, and is delivered again after a delay that grows with its deliveries, at most 15
minutes. The proxy stores the delay. A broker ignores it, which is logged once. Every other client has a delay as well,
without naming it: set it for the group, `kafka-configs --alter --entity-type groups --entity-name GROUP --add-config
share.redelivery.delay.ms=1000,share.redelivery.delay.multiplier=2`. confluent-kafka (`AcknowledgeType.RELEASE`) and
Java (`AcknowledgeType.RELEASE`) then release records as usual.

    from kafka_share_proxy import open_share_consumer

    async def patient_worker(bootstrap, work, first_s=1.0, **options):
        options |= {"acknowledgement_mode": "explicit"}
        async with open_share_consumer(bootstrap, **options) as consumer:
            async for record in consumer:
                try:
                    await work(record)
                    consumer.acknowledge(record)
                except Exception as error:
                    delay_s = min(first_s * 2 ** (record.delivery_count - 1), 900)
                    print(f"{record.topic}-{record.partition} at {record.offset} waits {delay_s} s: {error!r}")
                    consumer.release(record, delay_s=delay_s)
"""
