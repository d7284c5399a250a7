package origin

// Advisory locks on a shard, in PostgreSQL's two-integer key space so that they never meet an application's 64-bit keys. This is the
// one list of them; schema.sql repeats the numbers, and a test compares. All but LockSeat are transaction locks: a session lock would
// outlive its transaction behind a connection pooler.
const (
	// LockGlobal, key 0: every writer holds it shared until its transaction ends. Whoever changes ringside.view holds it exclusively.
	LockGlobal = 0x52530001
	// LockStripe, key vnode mod LockStripes: every writer holds it shared. Whoever changes the owner of a vnode holds it exclusively.
	// A lock per vnode would be wrong: an UPDATE of many rows would fill the server's lock table and fail every other session.
	LockStripe = 0x52530002
	// LockSchema, key 0: held exclusively while the schema "ringside" is installed or upgraded.
	LockSchema = 0x52530003
	// LockSeat, key from 1: held exclusively by a session of a sidecar for as long as it lives (see seats.go); it is not taken behind a pooler. Key 0: by a
	// session that waits for one of those. 0x52530005 is the catalog's (see package catalog).
	LockSeat = 0x52530004

	// LockStripes is the number of stripes.
	LockStripes = 64
)
