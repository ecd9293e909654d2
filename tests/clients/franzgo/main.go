// franz-go with nothing set but the bootstrap servers: franzgo BOOTSTRAP PREFIX [share | soak GROUP TOPIC SEED],
// or one member of a group: franzgo member BOOTSTRAP GROUP TOPIC [ASSIGNOR], or a reader: see plain.go, or share
// consumers at a target whose clock is advanced: see target.go, or a client at work: see work.go.
//
// Without "share": produce, consume in a group of two, transactions, admin. With it: a share consumer that keeps one
// record by renewing its lock, while another record's lock runs out. Prints what happened as one line of JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	partitions = 4
	records    = 40
	limit      = 90 * time.Second
	lock       = 2 * time.Second
	kept       = 5 * lock
)

type run struct {
	ctx       context.Context
	bootstrap string
	prefix    string
	topic     string
	shown     map[string]any
}

func check(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
		os.Exit(1)
	}
}

func (r *run) client(opts ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(append(opts, secured()...), kgo.SeedBrokers(strings.Split(r.bootstrap, ",")...))...)
	check(err, "new client")
	return client
}

// TLS with the files that the environment names, or none.
func secured() []kgo.Opt {
	if os.Getenv("KSP_TEST_CA") == "" {
		return nil
	}
	authority, err := os.ReadFile(os.Getenv("KSP_TEST_CA"))
	check(err, "read authority")
	pair, err := tls.LoadX509KeyPair(os.Getenv("KSP_TEST_CERT"), os.Getenv("KSP_TEST_KEY"))
	check(err, "read certificate")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return []kgo.Opt{kgo.DialTLSConfig(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}})}
}

func main() {
	if os.Args[1] == "member" {
		member(os.Args[2], os.Args[3], os.Args[4], strings.Join(os.Args[5:], ""))
		return
	}
	if os.Args[1] == "target" {
		shareAtTarget(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	if os.Args[1] == "work" {
		work(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		return
	}
	if os.Args[1] == "plain" {
		plainReader(os.Args[2:])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := &run{ctx, os.Args[1], os.Args[2], os.Args[2] + "-topic", map[string]any{}}
	if len(os.Args) > 6 && os.Args[3] == "soak" {
		r.soak(os.Args[4], os.Args[5], os.Args[6])
	} else if len(os.Args) > 3 && os.Args[3] == "share" {
		r.share()
	} else {
		r.admin()
		r.produce()
		r.rebalance()
		r.transactions()
		r.remove()
	}
	shown, err := json.Marshal(r.shown)
	check(err, "marshal")
	fmt.Println(string(shown))
}

func (r *run) admin() {
	client := r.client()
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err := admin.CreateTopics(r.ctx, partitions, -1, nil, r.topic)
	check(err, "create topic")
	_, err = admin.CreateTopics(r.ctx, 1, -1, nil, r.topic+"-t")
	check(err, "create topic")
	brokers, err := admin.ListBrokers(r.ctx)
	check(err, "list brokers")
	for _, broker := range brokers {
		r.shown["brokers"] = fmt.Sprintf("%d@%s:%d", broker.NodeID, broker.Host, broker.Port)
	}
}

// Idempotent with zstd, then without acknowledgement.
func (r *run) produce() {
	for acks, options := range map[string][]kgo.Opt{
		"all":  {kgo.ProducerBatchCompression(kgo.ZstdCompression())},
		"none": {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
	} {
		client := r.client(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		var batch []*kgo.Record
		for i := range records / 2 {
			value := []byte(fmt.Sprintf("%s %d", acks, i))
			batch = append(batch, &kgo.Record{Topic: r.topic, Partition: int32(i % partitions), Value: value})
		}
		check(client.ProduceSync(r.ctx, batch...).FirstErr(), "produce with acks "+acks)
		client.Close()
	}
	r.shown["produced"] = records
}

func (r *run) rebalance() {
	seen := map[string]bool{}
	assigned := make(chan [2]int, 100)
	counts := [2]int{}
	member := func(number int) *kgo.Client {
		held := 0
		change := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
				held += sign * len(changed[r.topic])
				assigned <- [2]int{number, held}
			}
		}
		return r.client(
			kgo.ConsumerGroup(r.prefix+"-group"), kgo.ConsumeTopics(r.topic), kgo.HeartbeatInterval(300*time.Millisecond),
			kgo.OnPartitionsAssigned(change(1)), kgo.OnPartitionsRevoked(change(-1)),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		)
	}
	first := member(0)
	for len(seen) < records {
		fetches := first.PollFetches(r.ctx)
		check(fetches.Err0(), "consume")
		fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Value)] = true })
	}
	r.shown["consumed"] = len(seen)
	second := member(1)
	go func() {
		for second.PollFetches(r.ctx).Err0() == nil {
		}
	}()
	go func() {
		for first.PollFetches(r.ctx).Err0() == nil {
		}
	}()
	for counts != [2]int{partitions / 2, partitions / 2} {
		select {
		case changed := <-assigned:
			counts[changed[0]] = changed[1]
		case <-r.ctx.Done():
			check(r.ctx.Err(), fmt.Sprintf("rebalance, held are %v", counts))
		}
	}
	r.shown["assigned"] = counts
	first.Close()
	second.Close()
}

func (r *run) transactions() {
	client := r.client(kgo.TransactionalID(r.prefix + "-id"))
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		check(client.BeginTransaction(), "begin")
		record := &kgo.Record{Topic: r.topic + "-t", Value: []byte(fmt.Sprint(bool(end)))}
		check(client.ProduceSync(r.ctx, record).FirstErr(), "produce in a transaction")
		check(client.EndTransaction(r.ctx, end), "end the transaction")
	}
	client.Close()
	reader := r.client(kgo.ConsumeTopics(r.topic+"-t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	var committed []string
	for len(committed) == 0 {
		fetches := reader.PollFetches(r.ctx)
		check(fetches.Err0(), "read committed")
		fetches.EachRecord(func(record *kgo.Record) { committed = append(committed, string(record.Value)) })
	}
	r.shown["committed"] = committed
}

func (r *run) remove() {
	client := r.client()
	defer client.Close()
	admin := kadm.NewClient(client)
	groups, err := admin.ListGroups(r.ctx)
	check(err, "list groups")
	var listed []string
	for _, group := range groups.Groups() {
		if strings.HasPrefix(group, r.prefix) {
			listed = append(listed, group)
		}
	}
	sort.Strings(listed)
	r.shown["listed"] = listed
	_, err = admin.DeleteTopics(r.ctx, r.topic, r.topic+"-t")
	check(err, "delete topics")
}

// Two records: one is renewed every half lock for five locks and then accepted, the other is left alone.
func (r *run) share() {
	group := r.prefix + "-share"
	r.prepareShare(group)
	// Strict: it fetches only when polled, so it does not take again what it let go.
	holder := r.client(kgo.ShareGroup(group), kgo.ConsumeTopics(r.topic), kgo.ShareMaxRecords(2), kgo.ShareMaxRecordsStrict())
	defer holder.Close()
	var held []*kgo.Record
	for len(held) < 2 {
		fetches := holder.PollFetches(r.ctx)
		check(fetches.Err0(), "share poll")
		held = append(held, fetches.Records()...)
	}
	other := r.client(kgo.ShareGroup(group), kgo.ConsumeTopics(r.topic))
	defer other.Close()
	begin := time.Now()
	var redelivered []string
	got := make(chan string, 100)
	go func() {
		for {
			fetches := other.PollFetches(r.ctx)
			if fetches.Err0() != nil {
				return
			}
			for _, record := range fetches.Records() {
				record.Ack(kgo.AckAccept)
				got <- fmt.Sprintf("%d delivery %d", record.Offset, record.DeliveryCount())
			}
			other.FlushAcks(r.ctx)
		}
	}()
	renewals := 0
	for time.Since(begin) < kept {
		held[0].Ack(kgo.AckRenew)
		check(holder.FlushAcks(r.ctx), "renew")
		renewals++
		select {
		case offset := <-got:
			redelivered = append(redelivered, offset)
		case <-time.After(lock / 2):
		}
	}
	held[0].Ack(kgo.AckAccept)
	check(holder.FlushAcks(r.ctx), "accept")
	select {
	case offset := <-got:
		redelivered = append(redelivered, offset)
	case <-time.After(2 * lock):
	}
	r.shown["renewals"] = renewals
	r.shown["redelivered"] = redelivered
}

func (r *run) prepareShare(group string) {
	client := r.client()
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err := admin.CreateTopics(r.ctx, 1, -1, nil, r.topic)
	check(err, "create topic")
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeGroupConfig
	resource.ResourceName = group
	for name, value := range map[string]string{
		"share.record.lock.duration.ms": fmt.Sprint(lock.Milliseconds()), "share.auto.offset.reset": "earliest",
	} {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, &value
		resource.Configs = append(resource.Configs, config)
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	changed, err := request.RequestWith(r.ctx, client)
	check(err, "set group configs")
	check(kerr.ErrorForCode(changed.Resources[0].ErrorCode), "set group configs")
	for i := range 2 {
		record := &kgo.Record{Topic: r.topic, Value: []byte(fmt.Sprint(i))}
		check(client.ProduceSync(r.ctx, record).FirstErr(), "produce")
	}
}
