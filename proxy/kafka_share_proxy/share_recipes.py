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
"""
