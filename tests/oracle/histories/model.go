package main

import (
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"
)

const (
	available = iota
	acquired
	settled
)

// A record's state, as a share partition keeps it.
type record struct {
	status     int
	member     string
	lock       int
	deliveries int
	restarted  bool // True if the count was kept by an owner that is gone
}

// A chain is the state of all records of one key: those before `next` are settled, those after it were never acquired.
type chain struct {
	next int
	record
}

// step returns the states of the record after an operation. None: the operation is impossible in this state.
func (h *history) step(now record, op *operation) []record {
	switch op.Op {
	case "acquire":
		return h.acquire(now, op)
	case "expire":
		if now.status == acquired && now.lock == op.Lock {
			return []record{h.freed(now)}
		}
		return []record{now}
	case "failover":
		if now.status == acquired {
			now = record{deliveries: now.deliveries, restarted: true}
		}
		return []record{now}
	case "settled":
		if now.status == settled {
			return []record{now}
		}
		return nil
	}
	return h.acknowledge(now, op)
}

func (h *history) acquire(now record, op *operation) []record {
	expected := op.Deliveries == now.deliveries+1 || !h.Exact && op.Deliveries > now.deliveries
	if now.status != available || !expected && !now.restarted || h.Limit > 0 && op.Deliveries > h.Limit {
		return nil
	}
	return []record{{status: acquired, member: op.Member, lock: op.Lock, deliveries: op.Deliveries}}
}

func (h *history) acknowledge(now record, op *operation) []record {
	holds := now.status == acquired && now.member == op.Member
	switch {
	case op.Outcome == "refused" && holds:
		return nil
	case op.Outcome == "refused":
		return []record{now}
	case !holds && op.Outcome == "unknown":
		return []record{now}
	case !holds:
		if now.status == settled && op.passable { // Kafka accepts anything below the start offset
			return []record{now}
		}
		return nil
	}
	after := h.effect(now, op)
	if op.Outcome == "unknown" {
		return []record{after, now}
	}
	return []record{after}
}

func (h *history) effect(now record, op *operation) record {
	switch op.Kind {
	case "renew":
		now.lock = op.Lock
		return now
	case "release":
		return h.freed(now)
	}
	return record{status: settled}
}

func (h *history) freed(now record) record {
	if h.Limit > 0 && now.deliveries >= h.Limit {
		return record{status: settled}
	}
	return record{deliveries: now.deliveries}
}

// byRecord judges each record by itself.
func (h *history) byRecord() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{record{}} },
		Step: func(state, input, _ any) []any {
			var after []any
			for _, each := range h.step(state.(record), input.(*operation)) {
				after = append(after, each)
			}
			return after
		},
		Partition: partitioned(func(op *operation) (string, bool) { return fmt.Sprint(op.at), true }),
	}
	return model.ToModel()
}

// byKey judges the records of each key together: at most one is acquired, in the order of offsets.
func (h *history) byKey() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{chain{}} },
		Step: func(state, input, _ any) []any {
			return h.stepOfKey(state.(chain), input.(*operation))
		},
		Partition: partitioned(func(op *operation) (string, bool) {
			key, found := h.keys[op.at]
			return fmt.Sprint(op.at.Partition, " ", key), found
		}),
	}
	return model.ToModel()
}

func (h *history) stepOfKey(now chain, op *operation) []any {
	one := now.record
	switch {
	case op.index < now.next:
		one = record{status: settled}
	case op.index > now.next:
		one = record{}
		if op.Op == "acquire" {
			return nil // an earlier record of the key is not settled
		}
	}
	var after []any
	for _, each := range h.step(one, op) {
		switch {
		case op.index != now.next:
			after = append(after, now) // a settled record, or one that was not acquired yet, does not change
		case each.status == settled:
			after = append(after, chain{next: now.next + 1})
		default:
			after = append(after, chain{now.next, each})
		}
	}
	return after
}

func partitioned(name func(*operation) (string, bool)) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(all []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, each := range all {
			if part, found := name(each.Input.(*operation)); found {
				parts[part] = append(parts[part], each)
			}
		}
		names := make([]string, 0, len(parts))
		for part := range parts {
			names = append(names, part)
		}
		sort.Strings(names)
		sorted := make([][]porcupine.Operation, len(names))
		for number, part := range names {
			sorted[number] = parts[part]
		}
		return sorted
	}
}
