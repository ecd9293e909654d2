package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	atOnce  = 200
	wait    = 200 * time.Millisecond
	session = 10 * time.Second
	beat    = 500 * time.Millisecond
	refresh = time.Second
)

// A member of a group that reads a view: franzgo member BOOTSTRAP GROUP TOPIC [ASSIGNOR].
// Says what it gets as tests/support/view_member.py does; leaves its group when its input ends. The assignor is range,
// sticky, cooperative-sticky (as when none is named) or, for groups of KIP-848, consumer.
func member(bootstrap, group, topic, assignor string) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	told := newTeller()
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(beat), kgo.FetchMaxWait(wait),
		kgo.MetadataMinAge(refresh / 2), kgo.MetadataMaxAge(refresh),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(told.changed(topic, true)), kgo.OnPartitionsRevoked(told.changed(topic, false)),
		kgo.OnPartitionsLost(told.changed(topic, false)),
	}
	switch assignor {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "sticky":
		options = append(options, kgo.Balancers(kgo.StickyBalancer()))
	case "consumer":
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	client, err := kgo.NewClient(options...)
	check(err, "new client")
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, atOnce)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				told.tell("error", err.Error())
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			told.tell("record", r.Partition, r.Offset, string(r.Key), string(r.Value))
		})
		told.flush()
		if !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil && !rebalancing(err) {
				told.tell("error", "commit: "+err.Error())
			}
		}
		client.AllowRebalance() // only here: what is read belongs to this member until it is committed
	}
	client.CloseAllowingRebalance()
	told.flush()
}

func rebalancing(err error) bool {
	for _, each := range []error{
		kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch,
	} {
		if err == each {
			return true
		}
	}
	return false
}

// Lines of JSON, and the partitions that this member has.
type teller struct {
	mutex sync.Mutex
	out   *bufio.Writer
	held  map[int32]bool
}

func newTeller() *teller {
	return &teller{out: bufio.NewWriter(os.Stdout), held: map[int32]bool{}}
}

func (t *teller) tell(line ...any) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.write(line...)
}

func (t *teller) write(line ...any) {
	text, err := json.Marshal(line)
	check(err, "marshal")
	_, err = t.out.Write(append(text, '\n'))
	check(err, "write")
}

func (t *teller) flush() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	check(t.out.Flush(), "write")
}

func (t *teller) changed(topic string, gained bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		for _, partition := range changed[topic] {
			if gained {
				t.held[partition] = true
			} else {
				delete(t.held, partition)
			}
		}
		if !gained {
			t.write("revoked", sorted(changed[topic]))
		}
		all := []int32{}
		for partition := range t.held {
			all = append(all, partition)
		}
		t.write("assigned", sorted(all))
		check(t.out.Flush(), "write")
	}
}

func sorted(partitions []int32) []int32 {
	found := append([]int32{}, partitions...)
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	return found
}
