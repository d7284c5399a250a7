package failpoint

// Point is a place in the program at which a test may let it die or wait.
type Point string

// The points of a write, in its order. Poisoning and the transaction up to its commit go on at the same time.
const (
	WriteBegins   Point = "write begins"
	Poisoned      Point = "poisoned"      // the row's entries are out of reach
	Begun         Point = "begun"         // the transaction is
	Fenced        Point = "fenced"        // the shard has let it pass
	Stated        Point = "stated"        // the statement is carried out; nobody sees it
	Committing    Point = "committing"    // the next thing is COMMIT
	Committed     Point = "committed"     // the shard has said so
	Cleaning      Point = "cleaning"      // the next thing is to delete the entries
	CleanedOne    Point = "cleaned one"   // and the next is to delete another one, or the end
	Acknowledging Point = "acknowledging" // all is done
	Lifting       Point = "lifting"       // nothing was written: the poison is about to be taken away
)

// The points of a read that misses, in its order.
const (
	Leased  Point = "leased"  // the entry is ours to fill
	Loaded  Point = "loaded"  // the shard has answered
	Filling Point = "filling" // the next thing is to put it into the entry
	Filled  Point = "filled"
)

// The points of taking an entry over from its former owner, in its order.
const (
	TakingOver Point = "taking over" // the next thing is to ask the former owner
	Handed     Point = "handed"      // it has answered; the next thing is to put the entry here
	TakenOver  Point = "taken over"
)

// The points of a change of the ring.
const (
	Advancing Point = "advancing" // a shard is about to be brought to the next phase
	Advanced  Point = "advanced"
	Claimed   Point = "claimed" // a former owner's entries are ours to go through
	Closing   Point = "closing" // the next thing is to close a former owner
	Closed    Point = "closed"
)

// Forgetting is before the deletion of entries whose rows others have changed.
const Forgetting Point = "forgetting"

// The points of a write whose cached copy cannot be put out of reach, in its order.
const (
	Remembering Point = "remembering" // the next thing is to add it to the outbox, in its transaction
	Remembered  Point = "remembered"  // it is committed; the next thing is to wait
	Settling    Point = "settling"    // its copies are deleted; the next thing is to take it out
	Settled     Point = "settled"
)

// Points returns all of them.
func Points() []Point {
	return []Point{
		WriteBegins, Poisoned, Begun, Fenced, Stated, Committing, Committed, Cleaning, CleanedOne, Acknowledging, Lifting,
		Leased, Loaded, Filling, Filled, TakingOver, Handed, TakenOver, Advancing, Advanced, Claimed, Closing, Closed, Forgetting,
		Remembering, Remembered, Settling, Settled,
	}
}

// Rule is a rule of the protocol that a test may leave out, to see that its absence is found.
type Rule string

// The rules.
const (
	Lease      Rule = "lease"      // a value is put only in place of the lease that its loader got before
	Poison     Rule = "poison"     // nobody may fill an entry while a writer is at work
	Clean      Rule = "clean"      // entries are deleted before a write is acknowledged
	Generation Rule = "generation" // what was cached under an earlier owner is out of reach
	Fence      Rule = "fence"      // the shard refuses a writer with an older view
)

// Environment is the environment variable that names the file of Orders.
const Environment = "RINGSIDE_FAILPOINTS"

// Orders are what a program with the build tag failpoint is to do, as JSON in the file that Environment names. The file must be replaced whole.
type Orders struct {
	At      map[Point]Order   `json:"at,omitempty"`
	Without []Rule            `json:"without,omitempty"`
	Routes  map[string]string `json:"routes,omitempty"`   // where to connect instead of an address, both host:port
	NoPeers bool              `json:"no_peers,omitempty"` // gossip neither reaches others nor comes from them
}

// Order is what is to happen at a point.
type Order struct {
	// After is how often the point is passed before, counted from when the file was read.
	After int `json:"after,omitempty"`
	// Sleep is how long, in ms, everybody who comes by from then on waits; 0: the program kills itself, as by SIGKILL.
	Sleep int `json:"sleep_ms,omitempty"`
}
