package cdc

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// SlotName returns the name of a shard's replication slot. Slots are named by lower-case letters, digits and _ only; a shard whose name has others,
// or is too long, gets a check sum, so that two shards never share a slot.
func SlotName(shard string) string {
	const prefix, longest = "ringside_", 63
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, shard)
	if plain == shard && len(prefix)+len(plain) <= longest {
		return prefix + plain
	}
	sum := fmt.Sprintf("_%08x", crc32.ChecksumIEEE([]byte(shard)))
	return prefix + plain[:min(len(plain), longest-len(prefix)-len(sum))] + sum
}

// slotInfo is a row of pg_replication_slots.
type slotInfo struct {
	plugin, database string
	temporary        bool
	active           bool
	walStatus        string // reserved, extended, unreserved or lost
	retained         int64  // bytes of log that it keeps
	safe             int64  // bytes that may still be written before it can be lost; -1: no limit
}

// history is what tells whether the changes in a slot follow on those that were handed out before.
type history struct {
	slot     string // the slot that was followed; "": none ever was
	system   string // system identifier of the server
	timeline int64
}

// server is what the server says of itself.
type server struct {
	system   string
	timeline int64
	flushed  LSN // where its log ends
	database string
}

// plan is what to do about a shard's slot.
type plan uint8

const (
	follow  plan = iota // use the slot as it is
	create              // make the first slot: what was cached before has its TTL as the bound, as ever
	replace             // changes may have been missed: a new slot first, then a flush
	standBy             // somebody else follows
	refuse              // the name is taken by something that is not ours to touch
)

// decide says what to do. slot is nil when there is none. seen is the highest position that this process has acknowledged on this shard, 0 if
// none; why explains all but follow and create. Pure.
func decide(past history, now server, slot *slotInfo, seen LSN) (p plan, why string) {
	switch {
	case slot != nil && slot.database != now.database:
		return refuse, fmt.Sprintf("it belongs to the database %q: two shards of one name on one server cannot both be followed", slot.database)
	case slot != nil && (slot.plugin != outputPlugin || slot.temporary):
		return refuse, fmt.Sprintf("it is not a permanent slot of the plugin %s", outputPlugin)
	case slot != nil && slot.active:
		return standBy, "another sidecar follows"
	case past.slot != "" && past.system != now.system:
		return replace, "the database is on another server, whose log does not go on from the former one's"
	case past.slot != "" && past.timeline != now.timeline:
		return replace, fmt.Sprintf("the server is on timeline %d, after %d", now.timeline, past.timeline)
	case seen > now.flushed:
		return replace, fmt.Sprintf("the server's log ends at %s, before %s, which had been followed", now.flushed, seen)
	case slot == nil && past.slot == "":
		return create, ""
	case slot == nil:
		return replace, "the replication slot is gone"
	case slot.walStatus == "lost":
		return replace, "the replication slot was invalidated: the server needed the space of its log (max_slot_wal_keep_size)"
	}
	return follow, ""
}

// sort of an error while a shard was looked at or followed.
type sort uint8

const (
	passing sort = iota // try again soon
	taken               // somebody else follows, or is about to
	broken              // the slot cannot be read on from: replace it
	setting             // somebody has to change a setting or a privilege first
)

const (
	codeUndefinedObject  = "42704" // no such slot, no such publication
	codePrivilege        = "42501"
	codeInUse            = "55006" // the slot is active
	codePrerequisite     = "55000" // the slot was invalidated
	codeUndefinedFile    = "58P01" // a piece of the log is gone
	codeConfigLimit      = "53400" // all replication slots are in use
	codeTooMany          = "53300" // all senders, or connections, are in use
	codeAuthorization    = "28000" // no line in pg_hba.conf
	codePassword         = "28P01"
	codeDuplicate        = "42710" // somebody has just made the same slot or publication
	codeUnique           = "23505" // likewise, at the same moment
	codeLockNotAvailable = "55P03"
	codeUndefinedTable   = "42P01"
	codeUndefinedSchema  = "3F000"
)

func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// judge sorts an error. following says that it came from the change stream, where a missing object means a missing publication or slot. advice says
// what somebody has to do, for setting only.
func judge(err error, following bool) (s sort, advice string) {
	if _, malformed := errors.AsType[*malformedError](err); malformed {
		return broken, ""
	}
	if set, ok := errors.AsType[*settingError](err); ok {
		return setting, set.advice
	}
	switch code(err) {
	case codeInUse, codeDuplicate, codeUnique:
		return taken, ""
	case codeUndefinedObject, codePrerequisite, codeUndefinedFile:
		if following {
			return broken, ""
		}
	case codePrivilege:
		return setting, "give the role of the dsn what it lacks: alter role ... replication, or ownership of the tables"
	case codeConfigLimit:
		return setting, "raise max_replication_slots, or drop a slot that nobody uses"
	case codeTooMany:
		return setting, "raise max_wal_senders or max_connections"
	case codeAuthorization, codePassword:
		return setting, "let the role of the dsn connect for replication in pg_hba.conf"
	}
	return passing, ""
}

// settingError is a fault that only an operator can mend.
type settingError struct {
	what, advice string
	always       bool // the shard cannot be followed, by anybody
}

func (e *settingError) Error() string { return e.what }

// notReadyError says that the shard is not installed yet, or is another shard's database.
type notReadyError struct{ what string }

func (e *notReadyError) Error() string { return e.what }

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err)
}
