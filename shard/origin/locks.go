package origin

// Advisory locks on a shard, in PostgreSQL's two-integer key space so that they never meet an application's 64-bit keys. This is the
// one list of them; schema.sql repeats the numbers, and a test compares. They are transaction locks only: a session lock would
// outlive its transaction behind a connection pooler.
const (
	// LockGlobal, key 0: every writer holds it shared until its transaction ends. Whoever changes ringside.view holds it exclusively.
	LockGlobal = 0x52530001
	// LockStripe, key vnode mod LockStripes: every writer holds it shared. Whoever changes the owner of a vnode holds it exclusively.
	// A lock per vnode would be wrong: an UPDATE of many rows would fill the server's lock table and fail every other session.
	LockStripe = 0x52530002
	// LockSchema, key 0: held exclusively while the schema "ringside" is installed or upgraded.
	LockSchema = 0x52530003

	// LockStripes is the number of stripes.
	LockStripes = 64
)
