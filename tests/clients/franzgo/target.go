// Share consumers at a target whose clock they advance: franzgo target BOOTSTRAP CONTROL TOPIC
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Posts without net/http, which takes longer to build than this program.
func advance(control string, ms int) {
	at, err := url.Parse(control)
	check(err, "read the address of the clock")
	connection, err := net.DialTimeout("tcp", at.Host, limit)
	check(err, "connect to the clock")
	defer connection.Close()
	fmt.Fprintf(connection, "POST /clock/advance?ms=%d HTTP/1.0\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", ms, at.Host)
	var version string
	var status int
	_, err = fmt.Fscan(connection, &version, &status)
	check(err, "read the response of the clock")
	if status != 200 {
		fmt.Fprintln(os.Stderr, "advance the clock:", status)
		os.Exit(1)
	}
}

// Polls until count records were delivered.
func (r *run) delivered(client *kgo.Client, count int) map[string]*kgo.Record {
	records := map[string]*kgo.Record{}
	for len(records) < count {
		fetches := client.PollFetches(r.ctx)
		check(fetches.Err0(), "share poll")
		fetches.EachRecord(func(record *kgo.Record) { records[string(record.Value)] = record })
	}
	return records
}

func counted(records map[string]*kgo.Record) []string {
	var shown []string
	for value, record := range records {
		shown = append(shown, fmt.Sprintf("%s %d", value, record.DeliveryCount()))
	}
	sort.Strings(shown)
	return shown
}

// Four records, one for each acknowledgement. The renewed one is delivered again when its lock of 30 s has expired,
// 30 s after the renewal and 50 s after the first delivery.
func shareAtTarget(bootstrap, control, topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := &run{ctx, bootstrap, topic, topic, map[string]any{}}
	producer := r.client()
	for _, value := range []string{"accepted", "released", "rejected", "renewed"} {
		record := &kgo.Record{Topic: topic, Value: []byte(value)}
		check(producer.ProduceSync(ctx, record).FirstErr(), "produce")
	}
	producer.Close()
	options := []kgo.Opt{kgo.ShareGroup(topic + "-share"), kgo.ConsumeTopics(topic),
		kgo.ShareMaxRecords(4), kgo.ShareMaxRecordsStrict()}
	first := r.client(options...)
	held := r.delivered(first, 4)
	r.shown["first"] = counted(held)
	advance(control, 20_000)
	held["accepted"].Ack(kgo.AckAccept)
	held["released"].Ack(kgo.AckRelease)
	held["rejected"].Ack(kgo.AckReject)
	held["renewed"].Ack(kgo.AckRenew)
	check(first.FlushAcks(ctx), "acknowledge")
	second := r.client(options...)
	r.settle("second", second)
	advance(control, 15_000) // the lock of the first delivery would have expired
	waiting, stop := context.WithTimeout(ctx, time.Second)
	r.shown["renewed"] = len(second.PollFetches(waiting).Records())
	stop()
	advance(control, 16_000)
	r.settle("expired", second)
	second.Close()
	first.Close()
	line, err := json.Marshal(r.shown)
	check(err, "marshal")
	fmt.Println(string(line))
}

func (r *run) settle(name string, client *kgo.Client) {
	records := r.delivered(client, 1)
	r.shown[name] = counted(records)
	for _, record := range records {
		record.Ack(kgo.AckAccept)
	}
	check(client.FlushAcks(r.ctx), "accept")
}
