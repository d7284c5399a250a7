package resp

//go:generate go test -run "^TestTable$" -update

import "encoding/binary"

// Flags say how a command behaves, as Redis's COMMAND lists them.
type Flags uint32

// Has reports whether all of the given flags are set.
func (f Flags) Has(flags Flags) bool { return f&flags == flags }

// Class says how a command finds its server.
type Class uint8

const (
	// ClassOther: no argument is a key. The caller answers by itself, asks all servers, or refuses.
	ClassOther Class = iota
	// ClassSingle: exactly one argument, args[First], is a key; the command can be passed on as it is.
	ClassSingle
	// ClassMulti: more than one argument may be a key, or their places depend on the call; use Keys. All must be on one server.
	ClassMulti
	// ClassSplit: like ClassMulti, but the command can be run in parts on many servers and the answers joined:
	// MGET, MSET, DEL, UNLINK, EXISTS, TOUCH.
	ClassSplit
)

// KeySpec is one rule by which arguments are keys; see COMMAND in Redis's documentation.
type KeySpec struct {
	Notes string   // a remark of Redis's, as COMMAND shows it
	Flags KeyFlags // what is done with the keys

	Begin     BeginSearch
	Index     int    // BeginIndex: the argument to begin at
	Keyword   string // BeginKeyword: the argument before it
	StartFrom int    // BeginKeyword: where to look from; negative: from that place counted from the end, backwards

	Find  FindKeys
	Last  int // FindRange: the last key relative to the first; negative: relative to the number of arguments
	Limit int // FindRange with Last -1: 2 means the first half of what is left
	Num   int // FindKeyNum: the argument that holds the number of keys, relative to the beginning
	First int // FindKeyNum: the first key, relative to the beginning
	Step  int // from key to key
}

// BeginSearch is how a KeySpec finds where to begin.
type BeginSearch uint8

const (
	BeginUnknown BeginSearch = iota // not by any rule: see CommandInfo.Keys
	BeginIndex                      // at an argument's place
	BeginKeyword                    // behind a keyword
)

// FindKeys is how a KeySpec goes on from there.
type FindKeys uint8

const (
	FindUnknown FindKeys = iota // not by any rule
	FindRange                   // up to a place
	FindKeyNum                  // as many as an argument says
)

// CommandInfo describes one command or subcommand of Redis 7.0. The table is shared: never change one.
type CommandInfo struct {
	// Name is in small letters; a subcommand's is "container|name".
	Name string
	// Index is its place among all commands and subcommands, each of which has one below CommandCount: for tables of one's own.
	Index int
	// Arity is the number of arguments with the name itself; -n means n or more.
	Arity int
	Flags Flags
	Class Class
	// First, Last and Step place the keys where that is possible by position alone; First is 0 where it is not. Last counts from the
	// end when negative.
	First, Last, Step int
	Categories        Categories
	Tips              []string
	KeySpecs          []KeySpec
	special           special
	// Subcommands are sorted by name; a command that has some does nothing by itself.
	Subcommands []CommandInfo
}

// Lookup finds a command by its name, in any case; nil when Redis 7.0 has none of that name. The subcommands of a container are
// reached through Resolve or Sub.
func Lookup(name []byte) *CommandInfo {
	if len(name) > longestName {
		return nil
	}
	c := &table[lookupIndex[hashName(lookupSeed, name)]]
	if !equalFold(name, c.Name) {
		return nil
	}
	return c
}

// hashName is free of collisions over the names of the table under lookupSeed, so that one comparison decides. It reads both ends of
// the name, which overlap in a short one. Bit 0x20 is set to make letters small.
func hashName(seed uint64, name []byte) uint64 {
	const (
		small = 0x2020202020202020
		mix   = 0x9e3779b97f4a7c15
	)
	var head, tail uint64
	switch n := len(name); {
	case n >= 8:
		head, tail = binary.LittleEndian.Uint64(name), binary.LittleEndian.Uint64(name[n-8:])
	case n >= 4:
		head, tail = uint64(binary.LittleEndian.Uint32(name)), uint64(binary.LittleEndian.Uint32(name[n-4:]))
	case n > 0:
		head, tail = uint64(name[0]), uint64(name[n/2])<<8|uint64(name[n-1])
	}
	h := (head|small)*mix ^ seed
	h = (h ^ h>>32 ^ (tail | small)) * mix
	return (h ^ h>>29) * mix >> (64 - lookupBits)
}

// Sub finds a subcommand by its name without the container's, in any case; nil when there is none.
func (c *CommandInfo) Sub(name []byte) *CommandInfo {
	for i := range c.Subcommands {
		sub := &c.Subcommands[i]
		if equalFold(name, sub.Name[len(c.Name)+1:]) {
			return sub
		}
	}
	return nil
}

// equalFold compares a name from the wire with one from the table, which is in small letters.
func equalFold(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Resolve finds the command or subcommand that args call and checks the number of arguments. The error is a Refusal in Redis's words;
// the command is nil then, except that it is set when only the number of arguments is wrong. args must not be empty.
func Resolve(args [][]byte) (*CommandInfo, error) {
	c := Lookup(args[0])
	if c == nil {
		return nil, UnknownCommand(args)
	}
	if c.Subcommands != nil && len(args) > 1 {
		sub := c.Sub(args[1])
		if sub == nil {
			return nil, UnknownSubcommand(args)
		}
		c = sub
	}
	if !c.ArityOK(len(args)) {
		return c, WrongArity(c.Name)
	}
	return c, nil
}

// ArityOK reports whether the command can be called with n arguments, its name (and its subcommand's) included.
func (c *CommandInfo) ArityOK(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// IsHTTP tells the "commands" POST and HOST: by which a web page that talks to the port by way of a browser shows itself. Redis closes
// the connection without an answer when it sees one, and so should every server on a loopback port.
func IsHTTP(name []byte) bool {
	return equalFold(name, "post") || equalFold(name, "host:")
}

// Commands returns all commands, sorted by name. The slice is the table itself: never change it.
func Commands() []CommandInfo { return table[:] }
