package history

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"
)

// Check returns every operation on a register that cannot be explained, in the order of time. ops may be in any order and are not changed.
//
// An operation whose version is not certain (a read of absence when there were several) is taken to be the oldest that is possible: only lower
// bounds follow from an operation, so whatever can be explained at all can be explained so.
func Check(r Register, ops []Op) []Violation {
	c := checker{name: r.Name, values: map[string][]int{}, marks: map[string][]int{}, floors: make([]floors, len(ops)), versions: make([]int, len(ops))}
	for version, s := range r.States {
		c.values[s.Value] = append(c.values[s.Value], version)
		if s.Mark != "" {
			c.marks[s.Mark] = append(c.marks[s.Mark], version)
		}
	}
	c.earliest = earliest(ops, c.marks, len(r.States))
	c.now = floors{write: floor{-1, -1}, read: floor{-1, -1}}
	for _, e := range events(ops) {
		if e.begins {
			c.begin(ops, e.op)
		} else {
			c.end(ops, e.op)
		}
	}
	return c.found
}

// earliest returns when each version can have been there at the earliest: not before its write had begun, nor that of a version before it. Of several
// writes with one mark, n versions take n that have begun. When there are more versions than writes, nothing is known of that mark.
func earliest(ops []Op, marks map[string][]int, versions int) []time.Duration {
	all := make([]time.Duration, versions)
	for i := range all {
		all[i] = math.MinInt64
	}
	begins := map[string][]time.Duration{}
	for i := range ops {
		if ops[i].Write && ops[i].Mark != "" {
			begins[ops[i].Mark] = append(begins[ops[i].Mark], ops[i].Begin)
		}
	}
	for mark, made := range marks {
		begun := begins[mark]
		if len(begun) < len(made) {
			continue
		}
		slices.Sort(begun)
		for i, version := range made {
			all[version] = begun[i]
		}
	}
	for v := 1; v < versions; v++ {
		all[v] = max(all[v], all[v-1])
	}
	return all
}

// event is the begin or the end of an operation. A write of unknown outcome ends when it can no longer take effect.
type event struct {
	at     time.Duration
	begins bool
	op     int
}

// events are in the order of time. Of two at the same time a begin comes first: then they are not known to be one after the other.
func events(ops []Op) []event {
	all := make([]event, 0, 2*len(ops))
	for i := range ops {
		end := ops[i].End
		if ops[i].Write && ops[i].Outcome == Unknown {
			if end = ops[i].Until; end == 0 {
				end = math.MaxInt64
			}
		}
		all = append(all, event{ops[i].Begin, true, i}, event{end, false, i})
	}
	slices.SortFunc(all, func(a, b event) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.begins == b.begins:
			return cmp.Compare(a.op, b.op)
		case a.begins:
			return -1
		}
		return 1
	})
	return all
}

// floor is the newest version that is known, and by which operation; -1: none is.
type floor struct{ version, op int }

// floors is what is known at some time: by acknowledged writes, and by reads.
type floors struct{ write, read floor }

func (f floors) higher() floor {
	if f.read.version > f.write.version {
		return f.read
	}
	return f.write
}

type checker struct {
	name          string
	values, marks map[string][]int // versions, ascending
	earliest      []time.Duration  // by version
	now           floors
	floors        []floors // by operation: what was known when it began
	versions      []int    // of writes, by operation; -1: it has none
	found         []Violation
}

func (c *checker) begin(ops []Op, i int) {
	c.floors[i] = c.now
	if ops[i].Write {
		c.versions[i] = c.beginWrite(ops, i)
	}
}

// beginWrite finds the version of a write. Nobody can have seen it, or anything later, before.
func (c *checker) beginWrite(ops []Op, i int) int {
	o := &ops[i]
	versions := c.marks[o.Mark]
	if o.Mark == "" {
		versions = nil
	}
	known := c.now.higher()
	at := sort.SearchInts(versions, known.version+1)
	switch one := len(versions) == 1; {
	case one && o.Outcome == Refused:
		c.add(ops, Denied, i, versions[0], floor{-1, -1})
		return versions[0]
	case o.Outcome != Acknowledged && !one: // whether it is one of these nobody can say
		return -1
	case at < len(versions):
		return versions[at]
	case one:
		c.add(ops, Future, i, versions[0], known)
		return versions[0]
	case o.Mark != "":
		c.add(ops, Lost, i, -1, floor{-1, -1})
	}
	return -1
}

func (c *checker) end(ops []Op, i int) {
	o := &ops[i]
	switch {
	case !o.Write:
		c.endRead(ops, i)
	case c.versions[i] > c.now.write.version && !o.Weak:
		c.now.write = floor{c.versions[i], i}
	}
}

func (c *checker) endRead(ops []Op, i int) {
	versions := c.values[ops[i].Value]
	if len(versions) == 0 {
		c.add(ops, Invented, i, -1, floor{-1, -1})
		return
	}
	then := c.floors[i]
	least := then.higher()
	at := sort.SearchInts(versions, least.version)
	// A version that was made only later explains nothing, if an older one is what was read. Else the write will be found to come too late.
	if at < len(versions) && (at == 0 || c.earliest[versions[at]] <= ops[i].End) {
		if version := versions[at]; version > c.now.read.version && !ops[i].Weak {
			c.now.read = floor{version, i}
		}
		return
	}
	last := versions[at-1]
	if last < then.write.version {
		c.add(ops, Stale, i, last, then.write)
	} else {
		c.add(ops, Back, i, last, then.read)
	}
}

func (c *checker) add(ops []Op, k Kind, i, version int, by floor) {
	v := Violation{Register: c.name, Kind: k, Op: ops[i], Version: version, Floor: by.version}
	if by.op >= 0 {
		v.Because = ops[by.op]
	}
	c.found = append(c.found, v)
}
