package topology

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MarkerName is the key on each cache server under which it keeps what it knows of the ring itself. Only sidecars write it.
const MarkerName = "rs:ring"

// CarryPrefix begins the names of the leases on new owners under which keys are carried over; the key follows. Whoever has found that a key is not
// on its former owner removes its lease on the new one before he uses it there: what a carrier has read before can then not be put there any more.
const CarryPrefix = "rs:carry:"

// Step is how far the hand-over of plain keys has come on the server that lost them. The server's own marker decides it, as a shard's view
// decides for its rows.
type Step uint8

// The steps. A hand-over only goes forward.
const (
	// Open: the former owner still serves the vnodes that it has lost.
	Open Step = iota
	// Held: nobody may touch them, for a moment, until all sidecars have seen it.
	Held
	// Handed: the new owners serve; what a key's new owner does not have is looked for on the former one first.
	Handed
)

var stepNames = [...]string{Open: "open", Held: "held", Handed: "handed"}

func (s Step) String() string {
	if int(s) < len(stepNames) {
		return stepNames[s]
	}
	return fmt.Sprintf("step(%d)", uint8(s))
}

// Marker is what a cache server says of the ring: "12 9:handed 12:open".
type Marker struct {
	// Epoch: a sidecar whose topology is older may not use the server for plain keys.
	Epoch uint64
	// Steps by the Since of each hand-over from this server.
	Steps map[uint64]Step
}

var errMarker = errors.New("the marker on the cache server is broken")

// ParseMarker reads what String made. An empty text is the marker of a server that knows nothing yet.
func ParseMarker(text string) (Marker, error) {
	m := Marker{Steps: map[uint64]Step{}}
	if text == "" {
		return m, nil
	}
	fields := strings.Split(text, " ")
	var err error
	if m.Epoch, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return Marker{}, errMarker
	}
	for _, f := range fields[1:] {
		number, name, ok := strings.Cut(f, ":")
		since, err := strconv.ParseUint(number, 10, 64)
		step := slices.Index(stepNames[:], name)
		if !ok || err != nil || step < 0 {
			return Marker{}, errMarker
		}
		m.Steps[since] = Step(step)
	}
	return m, nil
}

func (m Marker) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatUint(m.Epoch, 10))
	var order []uint64
	for since := range m.Steps {
		order = append(order, since)
	}
	slices.Sort(order)
	for _, since := range order {
		fmt.Fprintf(&b, " %d:%s", since, m.Steps[since])
	}
	return b.String()
}

// Caller is what a sidecar's connection to a cache server says of itself, by its name (CLIENT SETNAME): by which topology it sends plain
// keys, and which hand-overs it has seen held. The server's CLIENT LIST is thus the roll call of all who may still write there.
type Caller struct {
	Sidecar string
	Epoch   uint64
	Held    []uint64 // Since of each hand-over, ascending
}

const callerPrefix = "ringside"

// Name is the connection's name: "ringside:12:9,12:app-1". What no connection name may hold is replaced.
func (c Caller) Name() string {
	held := make([]string, len(c.Held))
	for i, since := range c.Held {
		held[i] = strconv.FormatUint(since, 10)
	}
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, c.Sidecar)
	return fmt.Sprintf("%s:%d:%s:%s", callerPrefix, c.Epoch, strings.Join(held, ","), name)
}

// ParseCaller reads a connection's name; false: it is not one of ours.
func ParseCaller(name string) (Caller, bool) {
	parts := strings.SplitN(name, ":", 4)
	if len(parts) != 4 || parts[0] != callerPrefix {
		return Caller{}, false
	}
	c := Caller{Sidecar: parts[3]}
	var err error
	if c.Epoch, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return Caller{}, false
	}
	for text := range strings.SplitSeq(parts[2], ",") {
		if text == "" {
			continue
		}
		since, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return Caller{}, false
		}
		c.Held = append(c.Held, since)
	}
	return c, true
}

// Hinders reports whether a connection keeps a hand-over from going on to step: it may still send plain keys by what counted before.
func (c Caller) Hinders(h Handover, step Step) bool {
	switch step {
	case Open, Held:
		return c.Epoch < h.Since
	}
	return c.Epoch < h.Since || !slices.Contains(c.Held, h.Since)
}
