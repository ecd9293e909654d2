package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
)

const lineMax = 1 << 20

// A place is a topic-partition's record.
type place struct {
	Partition int32
	Offset    int64
}

// A run is the first line: the settings of the group.
type run struct {
	Limit   int  // deliveries of a record; 0 if it is not checked
	Keyed   bool // share.ordering=key
	Settled bool // True if every record must be settled in the end
	Exact   bool // True if every response with acquired records is in the history
}

// A line of a history. Times are nanoseconds of one clock.
type line struct {
	Op         string  // run, record, acquire, acknowledge, expire, failover
	Limit      int     `json:",omitempty"`
	Keyed      bool    `json:",omitempty"`
	Settled    bool    `json:",omitempty"`
	Exact      bool    `json:",omitempty"`
	Member     string  `json:",omitempty"`
	Partition  int32   `json:",omitempty"`
	First      int64   `json:",omitempty"`
	Last       int64   `json:",omitempty"`
	Key        *string `json:",omitempty"` // of a record
	Kind       string  `json:",omitempty"` // accept, release, reject, gap, renew
	Outcome    string  `json:",omitempty"` // ok, refused, unknown
	Lock       int     `json:",omitempty"` // number of the lock that begins (acquire, renew) or may end (expire)
	Deliveries int     `json:",omitempty"` // as returned with an acquired record
	Call       int64   `json:",omitempty"`
	Return     *int64  `json:",omitempty"` // absent: open
}

// A history is one recorded run.
type history struct {
	run
	keys map[place]string // of records with a key
	all  []place          // produced records, in order
	ops  map[place][]*operation
	end  int64
}

// An operation on one record.
type operation struct {
	line
	at       place
	index    int  // position of the record among those with the same key
	passable bool // True if the start offset may have been after the record when the operation returned
}

func (o *operation) returned() int64 {
	if o.Return == nil {
		return math.MaxInt64
	}
	return *o.Return
}

func read(source io.Reader) (*history, error) {
	h := &history{keys: map[place]string{}, ops: map[place][]*operation{}}
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, lineMax)
	var failovers []line
	for number := 1; lines.Scan(); number++ {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		switch one.Op {
		case "run":
			h.run = run{one.Limit, one.Keyed, one.Settled, one.Exact}
		case "failover":
			failovers = append(failovers, one)
		case "record", "acquire", "acknowledge", "expire":
			h.add(one)
		default:
			return nil, fmt.Errorf("line %d: no such operation: %q", number, one.Op)
		}
		h.end = max(h.end, one.Call)
		if one.Return != nil {
			h.end = max(h.end, *one.Return)
		}
	}
	h.complete(failovers)
	return h, lines.Err()
}

func (h *history) add(one line) {
	for offset := one.First; offset <= one.Last; offset++ {
		at := place{one.Partition, offset}
		switch {
		case one.Op != "record":
			h.ops[at] = append(h.ops[at], &operation{line: one, at: at})
		case one.Key != nil:
			h.keys[at] = *one.Key
			fallthrough
		default:
			h.all = append(h.all, at)
		}
	}
}

// complete derives what is not in the lines.
func (h *history) complete(failovers []line) {
	sort.Slice(h.all, func(i, j int) bool { return h.all[i].before(h.all[j]) })
	for at, ops := range h.ops {
		for _, each := range failovers {
			if each.Partition == at.Partition {
				ops = append(ops, &operation{line: each, at: at})
			}
		}
		h.ops[at] = h.bounded(ops)
	}
	for _, at := range h.all {
		if h.Settled {
			last := h.end + 1
			h.ops[at] = append(h.ops[at], &operation{line: line{Op: "settled", Call: last, Return: &last}, at: at})
		}
	}
	h.mark()
}

func (p place) before(other place) bool {
	return p.Partition < other.Partition || p.Partition == other.Partition && p.Offset < other.Offset
}

// bounded returns the operations without locks that cannot end by themselves any more, and with an end of the others.
//
// A lock that ends has no effect once it is replaced. Therefore its end can be placed before the next acquire returns,
// and without effect if the record was settled or released before it could begin. Open ends would cost the search
// exponential time.
func (h *history) bounded(ops []*operation) []*operation {
	sort.SliceStable(ops, func(i, j int) bool { return ops[i].Call < ops[j].Call })
	began := map[int]*operation{}
	for _, each := range ops {
		if each.Lock != 0 && each.Op != "expire" {
			began[each.Lock] = each
		}
	}
	kept := ops[:0]
	for _, each := range ops {
		if each.Op == "expire" {
			begin, found := began[each.Lock]
			if !found {
				continue
			}
			end := h.replaced(ops, begin)
			if end < each.Call {
				continue
			}
			if end < math.MaxInt64 {
				copied := *each
				copied.Return = &end
				each = &copied
			}
		}
		kept = append(kept, each)
	}
	return kept
}

// replaced returns when the lock surely no longer is the present one of its record.
func (h *history) replaced(ops []*operation, begin *operation) int64 {
	end := int64(math.MaxInt64)
	for _, each := range ops {
		ends := each.Op == "acquire" || each.Op == "failover" ||
			each.Op == "acknowledge" && each.Outcome == "ok" && each.Member == begin.Member
		if ends && each != begin && each.Call >= begin.returned() {
			end = min(end, each.returned())
		}
	}
	return end
}

// mark finds the records of each key, and the moment from which the start offset may be after a record: not before all
// records up to it can be settled.
func (h *history) mark() {
	chains := map[string]int{}
	var partition int32 = -1
	var passable int64
	for _, at := range h.all {
		if at.Partition != partition {
			partition, passable = at.Partition, 0
		}
		passable = max(passable, h.settledFrom(at))
		index := 0
		if key, found := h.keys[at]; found {
			chain := fmt.Sprint(at.Partition, " ", key)
			index = chains[chain]
			chains[chain]++
		}
		for _, each := range h.ops[at] {
			each.index, each.passable = index, each.returned() >= passable
		}
	}
}

// settledFrom returns the earliest time at which a record can have been settled.
func (h *history) settledFrom(at place) int64 {
	earliest := int64(math.MaxInt64)
	for _, each := range h.ops[at] {
		settles := each.Op == "acknowledge" && each.Outcome != "refused" && each.Kind != "renew" && each.Kind != "release"
		last := h.Limit > 0 && each.Op == "acquire" && each.Deliveries >= h.Limit
		if settles || last {
			earliest = min(earliest, each.Call)
		}
	}
	return earliest
}
