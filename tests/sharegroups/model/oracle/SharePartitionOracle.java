package kafka.server.share;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.PriorityQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ReadShareGroupStateResponseData;
import org.apache.kafka.common.message.WriteShareGroupStateResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.server.purgatory.DelayedOperationPurgatory;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.fetch.InFlightBatch;
import org.apache.kafka.server.share.persister.DeleteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.DeleteShareGroupStateResult;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateParameters;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateResult;
import org.apache.kafka.server.share.persister.Persister;
import org.apache.kafka.server.share.persister.ReadShareGroupStateParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateResult;
import org.apache.kafka.server.share.persister.ReadShareGroupStateSummaryParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateSummaryResult;
import org.apache.kafka.server.share.persister.WriteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.WriteShareGroupStateResult;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchPartitionData;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;

/** Kafka's own SharePartition behind a pipe: a command per line in, an answer per line out (see kafka.py beside it). */
public class SharePartitionOracle {
    private static final Uuid TOPIC = Uuid.randomUuid();
    private static sun.misc.Unsafe unsafe;
    private static long nowMs = 0;
    private static int serial = 0;
    private static boolean storeAtOnce = false;
    private static final Map<Integer, CompletableFuture<WriteShareGroupStateResult>> writes = new HashMap<>();
    private static int nextWrite = 0;
    private static FakeTimer timer;
    private static SharePartition partition;

    private static class FakeTime implements Time {
        public long milliseconds() { return nowMs; }
        public long hiResClockMs() { return nowMs; }
        public long nanoseconds() { return nowMs * 1_000_000; }
        public void sleep(long ms) { nowMs += ms; }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
    }

    private static class FakeTimer implements Timer {
        private final PriorityQueue<TimerTaskEntry> queue =
            new PriorityQueue<>((left, right) -> Long.compare(left.expirationMs, right.expirationMs));

        public void add(TimerTask task) { queue.add(new TimerTaskEntry(task, task.delayMs + nowMs)); }

        public boolean advanceClock(long ms) {
            nowMs += ms;
            while (!queue.isEmpty() && queue.peek().expirationMs <= nowMs) {
                TimerTaskEntry entry = queue.poll();
                if (!entry.cancelled()) entry.timerTask.run();
            }
            return true;
        }

        public int size() { return queue.size(); }
        public void close() { }
    }

    private static class NoGroupConfigs extends GroupConfigManager {
        NoGroupConfigs() { super(null, null, null); }
        @Override public Optional<GroupConfig> groupConfig(String groupId) { return Optional.empty(); }
    }

    /** A store whose writes end when a command says so. */
    private static class FakePersister implements Persister {
        private final ReadShareGroupStateResponseData stored;

        FakePersister(ReadShareGroupStateResponseData stored) { this.stored = stored; }

        public CompletableFuture<ReadShareGroupStateResult> readState(ReadShareGroupStateParameters parameters) {
            return CompletableFuture.completedFuture(ReadShareGroupStateResult.from(stored));
        }

        public CompletableFuture<WriteShareGroupStateResult> writeState(WriteShareGroupStateParameters parameters) {
            if (storeAtOnce) return CompletableFuture.completedFuture(written(Errors.NONE));
            CompletableFuture<WriteShareGroupStateResult> future = new CompletableFuture<>();
            writes.put(nextWrite++, future);
            return future;
        }

        public CompletableFuture<InitializeShareGroupStateResult> initializeState(InitializeShareGroupStateParameters p) {
            throw new UnsupportedOperationException();
        }

        public CompletableFuture<DeleteShareGroupStateResult> deleteState(DeleteShareGroupStateParameters p) {
            throw new UnsupportedOperationException();
        }

        public CompletableFuture<ReadShareGroupStateSummaryResult> readSummary(ReadShareGroupStateSummaryParameters p) {
            throw new UnsupportedOperationException();
        }

        public void stop() { }
    }

    private static WriteShareGroupStateResult written(Errors error) {
        return WriteShareGroupStateResult.from(new WriteShareGroupStateResponseData().setResults(List.of(
            new WriteShareGroupStateResponseData.WriteStateResult().setTopicId(TOPIC).setPartitions(List.of(
                new WriteShareGroupStateResponseData.PartitionResult().setErrorCode(error.code()))))));
    }

    /** new START LIMIT CAP LOCK_MS [FIRST:LAST:STATE:COUNT,...] */
    private static String create(String[] words) throws Exception {
        nowMs = 0;
        nextWrite = 0;
        writes.clear();
        timer = new FakeTimer();
        List<ReadShareGroupStateResponseData.StateBatch> batches = new ArrayList<>();
        for (String[] batch : split(words, 5)) {
            batches.add(new ReadShareGroupStateResponseData.StateBatch()
                .setFirstOffset(Long.parseLong(batch[0])).setLastOffset(Long.parseLong(batch[1]))
                .setDeliveryState(Byte.parseByte(batch[2])).setDeliveryCount(Short.parseShort(batch[3])));
        }
        ReadShareGroupStateResponseData stored = new ReadShareGroupStateResponseData().setResults(List.of(
            new ReadShareGroupStateResponseData.ReadStateResult().setTopicId(TOPIC).setPartitions(List.of(
                new ReadShareGroupStateResponseData.PartitionResult().setStateEpoch(1)
                    .setStartOffset(Long.parseLong(words[1])).setStateBatches(batches)))));
        // Only the purgatory of a ReplicaManager is used: waiting fetches, of which there are none.
        ReplicaManager replicaManager = (ReplicaManager) unsafe.allocateInstance(ReplicaManager.class);
        Field purgatory = ReplicaManager.class.getDeclaredField("delayedShareFetchPurgatory");
        unsafe.putObject(replicaManager, unsafe.objectFieldOffset(purgatory),
            new DelayedOperationPurgatory<DelayedShareFetch>("p" + serial, new FakeTimer(), 0, 1000, false, false));
        partition = new SharePartition("g" + serial++, new TopicIdPartition(TOPIC, 0, "t"), 0,
            Integer.parseInt(words[3]), Integer.parseInt(words[2]), Integer.parseInt(words[4]), timer, new FakeTime(),
            new FakePersister(stored), replicaManager,
            (GroupConfigManager) unsafe.allocateInstance(NoGroupConfigs.class), null);
        partition.maybeInitialize().join();
        return "ok";
    }

    /** set LIMIT CAP LOCK_MS */
    private static String configure(String[] words) throws Exception {
        String[] names = {"defaultMaxDeliveryCount", "defaultMaxInFlightRecords", "defaultRecordLockDurationMs"};
        for (int i = 0; i < names.length; i++) {
            Field field = SharePartition.class.getDeclaredField(names[i]);
            unsafe.putInt(partition, unsafe.objectFieldOffset(field), Integer.parseInt(words[i + 1]));
        }
        return "ok";
    }

    /** acquire MEMBER RECORD_LIMIT BATCH_SIZE MAX_RECORDS FETCH_OFFSET FIRST:LAST,... */
    private static String acquire(String[] words) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        for (String[] batch : split(words, 6)) {
            long base = Long.parseLong(batch[0]);
            MemoryRecordsBuilder builder =
                MemoryRecords.builder(buffer, Compression.NONE, TimestampType.CREATE_TIME, base);
            for (long offset = base; offset <= Long.parseLong(batch[1]); offset++) {
                builder.appendWithOffset(offset, 0L, null, new byte[1]);
            }
            builder.close();
        }
        buffer.flip();
        FetchPartitionData data = new FetchPartitionData(Errors.NONE, 0, 0, MemoryRecords.readableRecords(buffer),
            Optional.empty(), OptionalLong.empty(), Optional.empty(), OptionalInt.empty(), false);
        ShareAcquireMode mode = words[2].equals("1") ? ShareAcquireMode.RECORD_LIMIT : ShareAcquireMode.BATCH_OPTIMIZED;
        StringBuilder out = new StringBuilder("ok");
        partition.acquire(words[1], mode, Integer.parseInt(words[3]), Integer.parseInt(words[4]),
            Long.parseLong(words[5]), data, FetchIsolation.HIGH_WATERMARK).acquiredRecords().forEach(acquired ->
            out.append(" ").append(acquired.firstOffset()).append(":").append(acquired.lastOffset())
                .append(":").append(acquired.deliveryCount()));
        return out.toString();
    }

    /** ack MEMBER FIRST:LAST:TYPE/TYPE...,... */
    private static String acknowledge(String[] words) {
        List<ShareAcknowledgementBatch> batches = new ArrayList<>();
        for (String[] batch : split(words, 2)) {
            List<Byte> types = new ArrayList<>();
            for (String type : batch[2].split("/")) types.add(Byte.parseByte(type));
            batches.add(new ShareAcknowledgementBatch(Long.parseLong(batch[0]), Long.parseLong(batch[1]), types));
        }
        int write = nextWrite;
        return outcome(partition.acknowledge(words[1], batches), write);
    }

    private static String outcome(CompletableFuture<Void> future, int write) {
        if (!future.isDone()) return "pending " + write;
        try {
            future.join();
            return "done";
        } catch (CompletionException e) {
            return "error " + Errors.forException(e.getCause()).code();
        }
    }

    /** START END NEXT_FETCH_OFFSET CAN_ACQUIRE, then OFFSET:STATE:COUNT:MEMBER:IN_TRANSITION of what is tracked. */
    private static String state() {
        StringBuilder out = new StringBuilder("ok ").append(partition.startOffset()).append(" ")
            .append(partition.endOffset()).append(" ").append(partition.nextFetchOffset()).append(" ")
            .append(partition.canAcquireRecords());
        for (InFlightBatch batch : partition.cachedState().values()) {
            for (long offset = batch.firstOffset(); offset <= batch.lastOffset(); offset++) {
                out.append(" ").append(offset).append(":");
                if (batch.offsetState() == null) {
                    out.append(batch.batchState().id()).append(":").append(batch.batchDeliveryCount()).append(":")
                        .append(batch.batchMemberId()).append(":").append(batch.batchHasOngoingStateTransition());
                } else {
                    var state = batch.offsetState().get(offset);
                    out.append(state.state().id()).append(":").append(state.deliveryCount()).append(":")
                        .append(state.memberId()).append(":").append(state.hasOngoingStateTransition());
                }
            }
        }
        return out.toString();
    }

    private static List<String[]> split(String[] words, int index) {
        List<String[]> parts = new ArrayList<>();
        if (words.length > index) for (String part : words[index].split(",")) parts.add(part.split(":"));
        return parts;
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "new": return create(words);
            case "set": return configure(words);
            case "acquire": return acquire(words);
            case "ack": return acknowledge(words);
            case "release":
                int write = nextWrite;
                return outcome(partition.releaseAcquiredRecords(words[1]), write);
            case "complete":
                Errors error = words[2].equals("1") ? Errors.NONE : Errors.UNKNOWN_SERVER_ERROR;
                writes.remove(Integer.parseInt(words[1])).complete(written(error));
                return "ok";
            case "advance":
                storeAtOnce = true;
                timer.advanceClock(Long.parseLong(words[1]));
                storeAtOnce = false;
                return "ok";
            case "state": return state();
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (sun.misc.Unsafe) field.get(null);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String out;
            try {
                out = answer(line.split(" "));
            } catch (Throwable thrown) {
                out = "crash " + thrown + " at " + thrown.getStackTrace()[0];
            }
            System.out.println(out);
            System.out.flush();
        }
    }
}
