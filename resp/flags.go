package resp

// Flags of commands, in the order in which COMMAND lists them.
const (
	FlagWrite Flags = 1 << iota
	FlagReadonly
	FlagDenyoom
	FlagModule
	FlagAdmin
	FlagPubsub
	FlagNoscript
	FlagBlocking
	FlagLoading
	FlagStale
	FlagSkipMonitor
	FlagSkipSlowlog
	FlagAsking
	FlagFast
	FlagNoAuth // may be called before AUTH
	FlagMayReplicate
	FlagNoMandatoryKeys
	FlagNoAsyncLoading
	FlagNoMulti // not inside MULTI
	FlagMovablekeys
	FlagAllowBusy
)

var flagNames = [...]string{
	"write", "readonly", "denyoom", "module", "admin", "pubsub", "noscript", "blocking", "loading", "stale", "skip_monitor",
	"skip_slowlog", "asking", "fast", "no_auth", "may_replicate", "no_mandatory_keys", "no_async_loading", "no_multi",
	"movablekeys", "allow_busy",
}

// Categories are the access control categories of a command.
type Categories uint32

// Has reports whether all of the given categories are set.
func (c Categories) Has(categories Categories) bool { return c&categories == categories }

// Categories in the order in which COMMAND lists them.
const (
	CategoryKeyspace Categories = 1 << iota
	CategoryRead
	CategoryWrite
	CategorySet
	CategorySortedset
	CategoryList
	CategoryHash
	CategoryString
	CategoryBitmap
	CategoryHyperloglog
	CategoryGeo
	CategoryStream
	CategoryPubsub
	CategoryAdmin
	CategoryFast
	CategorySlow
	CategoryBlocking
	CategoryDangerous
	CategoryConnection
	CategoryTransaction
	CategoryScripting
)

var categoryNames = [...]string{
	"@keyspace", "@read", "@write", "@set", "@sortedset", "@list", "@hash", "@string", "@bitmap", "@hyperloglog", "@geo", "@stream",
	"@pubsub", "@admin", "@fast", "@slow", "@blocking", "@dangerous", "@connection", "@transaction", "@scripting",
}

// KeyFlags say what a command does with the keys of one KeySpec.
type KeyFlags uint16

// Has reports whether all of the given flags are set.
func (f KeyFlags) Has(flags KeyFlags) bool { return f&flags == flags }

// Flags of key specs, in the order in which COMMAND lists them.
const (
	KeyRO     KeyFlags = 1 << iota // reads the value only
	KeyRW                          // changes it, and may need what is there
	KeyOW                          // overwrites it
	KeyRM                          // deletes it
	KeyAccess                      // returns, copies or uses what is there
	KeyUpdate
	KeyInsert
	KeyDelete
	KeyNotKey        // looks like a key and is placed like one, but is none: a shard channel
	KeyIncomplete    // there may be more keys than the spec finds
	KeyVariableFlags // the flags depend on the call
)

var keyFlagNames = [...]string{
	"RO", "RW", "OW", "RM", "access", "update", "insert", "delete", "not_key", "incomplete", "variable_flags",
}
