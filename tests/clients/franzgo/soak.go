package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A share group member that lives until it is killed: franzgo BOOTSTRAP NAME soak GROUP TOPIC SEED.
// It tells "D partition offset count time" of each delivery, and "A", "L" or "J" (accept, release, reject) with
// "partition offset time" once that was confirmed; times are nanoseconds since 1970.
func (r *run) soak(group, topic, seed string) {
	number, err := strconv.ParseInt(seed, 10, 64)
	check(err, "seed")
	random := rand.New(rand.NewSource(number))
	var mutex sync.Mutex
	failed := map[int32]bool{}
	note := func(_ *kgo.Client, results kgo.ShareAckResults) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, result := range results {
			if result.Err != nil {
				failed[result.Partition] = true
			}
		}
	}
	client := r.client(kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.ShareMaxRecords(200),
		kgo.ShareMaxRecordsStrict(), kgo.ShareAckCallback(note))
	out := bufio.NewWriter(os.Stdout)
	ctx := context.Background()
	for {
		records := client.PollRecords(ctx, 200).Records()
		for _, record := range records {
			fmt.Fprintf(out, "D %d %d %d %d\n", record.Partition, record.Offset, record.DeliveryCount(), time.Now().UnixNano())
		}
		check(out.Flush(), "write")
		if random.Intn(4) == 0 {
			for _, record := range records {
				record.Ack(kgo.AckRenew)
			}
			check(client.FlushAcks(ctx), "renew")
		}
		said := make([]string, len(records))
		for i, record := range records {
			status, letter := kgo.AckAccept, "A"
			if draw := random.Intn(100); draw < 8 {
				status, letter = kgo.AckRelease, "L"
			} else if draw < 11 {
				status, letter = kgo.AckReject, "J"
			}
			record.Ack(status)
			said[i] = letter
		}
		mutex.Lock()
		clear(failed)
		mutex.Unlock()
		check(client.FlushAcks(ctx), "acknowledge")
		now := time.Now().UnixNano()
		mutex.Lock()
		for i, record := range records {
			if !failed[record.Partition] {
				fmt.Fprintf(out, "%s %d %d %d\n", said[i], record.Partition, record.Offset, now)
			}
		}
		mutex.Unlock()
		check(out.Flush(), "write")
	}
}
