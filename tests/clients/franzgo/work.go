package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	workPartitions = 6
	workPause      = 20 * time.Millisecond
)

// A client at work until SIGTERM: franzgo work produce|group BOOTSTRAP TOPIC NAME. It tells "P value time" of each
// record that was acknowledged to its producer, "C value time" of each that its group NAME received, and "E error".
func work(role, bootstrap, topic, name string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r := &run{bootstrap: bootstrap}
	if role == "produce" {
		r.workProduce(ctx, topic, name)
	} else {
		r.workGroup(ctx, topic, name)
	}
}

func (r *run) workProduce(ctx context.Context, topic, name string) {
	// kafka-python has no snappy, the default
	client := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	var mutex sync.Mutex
	told := func(record *kgo.Record, err error) {
		mutex.Lock()
		defer mutex.Unlock()
		if err != nil {
			fmt.Printf("E %v\n", err)
		} else {
			fmt.Printf("P %s %d\n", record.Value, time.Now().UnixNano())
		}
	}
	for number := 0; ctx.Err() == nil; number++ {
		value := []byte(fmt.Sprintf("%s-%d", name, number))
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: value, Partition: int32(number % workPartitions)}, told)
		time.Sleep(workPause)
	}
	check(client.Flush(context.Background()), "flush")
}

func (r *run) workGroup(ctx context.Context, topic, name string) {
	client := r.client(kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if ctx.Err() == nil {
				fmt.Printf("E %s: %v\n", strings.TrimSpace(failed.Topic), failed.Err)
			}
		}
		now := time.Now().UnixNano()
		fetches.EachRecord(func(record *kgo.Record) { fmt.Printf("C %s %d\n", record.Value, now) })
	}
	client.CloseAllowingRebalance()
}
