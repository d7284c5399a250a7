package resp

// ErrKeys is the refusal of a call whose keys cannot be told: a number of keys that is no number or does not fit the call, a keyword
// that is missing. Redis refuses every such call too, each with words of its own, so it may as well be sent to any server for those.
const ErrKeys = Refusal("ERR Invalid arguments specified for command")

// special marks the few commands whose keys no KeySpec describes.
type special uint8

const (
	specialNone    special = iota
	specialSort            // SORT: STORE may be anywhere
	specialGeo             // GEORADIUS, GEORADIUSBYMEMBER: STORE and STOREDIST, of which the last one counts
	specialMigrate         // MIGRATE: one key in its place, or any number behind KEYS
)

// Keys appends the positions of all keys in args to dst, in the order in which Redis finds them; args is the whole call, name first. A
// command without keys, or called with none, adds nothing. The number of arguments must have been checked (Resolve). The error is
// ErrKeys, and nothing is added then.
func (c *CommandInfo) Keys(args [][]byte, dst []int) ([]int, error) {
	switch c.special {
	case specialSort:
		return sortKeys(args, dst), nil
	case specialGeo:
		return geoKeys(args, c.KeySpecs[1].StartFrom, dst), nil
	case specialMigrate:
		return migrateKeys(args, dst)
	}
	before := len(dst)
	for i := range c.KeySpecs {
		spec := &c.KeySpecs[i]
		if spec.Flags.Has(KeyNotKey) || spec.Begin == BeginUnknown {
			continue
		}
		first, last, ok := spec.place(args)
		if !ok {
			return dst[:before], ErrKeys
		}
		for k := first; k <= last; k += spec.Step {
			dst = append(dst, k)
		}
	}
	return dst, nil
}

// place finds the first and the last key; last < first when there is none.
func (s *KeySpec) place(args [][]byte) (first, last int, ok bool) {
	first = s.Index
	if s.Begin == BeginKeyword {
		at := findKeyword(args, s.StartFrom, s.Keyword)
		if at < 0 {
			return 0, 0, false
		}
		first = at + 1
	}
	switch {
	case s.Find == FindKeyNum:
		if first+s.Num >= len(args) {
			return 0, 0, false
		}
		n, ok := parseInt(args[first+s.Num])
		first += s.First
		// Redis would run a negative number of keys into its own check; a number beyond the call's end too.
		if !ok || n < 0 || n > int64(len(args)-first) {
			return 0, 0, false
		}
		return first, first + int(n)*s.Step - s.Step, true
	case s.Last >= 0:
		last = first + s.Last
	case s.Limit > 0:
		last = first + (len(args)-first)/s.Limit + s.Last
	default:
		last = len(args) + s.Last
	}
	return first, last, last < len(args)
}

func findKeyword(args [][]byte, from int, upper string) int {
	for i := from; i < len(args); i++ {
		if isWord(args[i], upper) {
			return i
		}
	}
	return -1
}

// isWord compares an option with a word in capital letters, in any case.
func isWord(arg []byte, upper string) bool {
	if len(arg) != len(upper) {
		return false
	}
	for i, c := range arg {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}

// sortKeys: SORT key [BY p] [LIMIT o n] [GET p ...] [STORE dst]; the last STORE counts.
func sortKeys(args [][]byte, dst []int) []int {
	dst = append(dst, 1)
	store := 0
	for i := 2; i < len(args); i++ {
		switch {
		case isWord(args[i], "LIMIT"):
			i += 2
		case isWord(args[i], "GET"), isWord(args[i], "BY"):
			i++
		case isWord(args[i], "STORE") && i+1 < len(args):
			i++
			store = i
		}
	}
	if store > 0 {
		dst = append(dst, store)
	}
	return dst
}

// geoKeys: GEORADIUS key lon lat radius unit [options] [STORE dst] [STOREDIST dst]; GEORADIUSBYMEMBER has one argument less before the
// options.
func geoKeys(args [][]byte, options int, dst []int) []int {
	dst = append(dst, 1)
	store := 0
	for i := options; i+1 < len(args); i++ {
		if isWord(args[i], "STORE") || isWord(args[i], "STOREDIST") {
			i++
			store = i
		}
	}
	if store > 0 {
		dst = append(dst, store)
	}
	return dst
}

// migrateKeys: MIGRATE host port key|"" db timeout [COPY] [REPLACE] [AUTH p | AUTH2 u p] [KEYS key ...].
func migrateKeys(args [][]byte, dst []int) ([]int, error) {
	for i := 6; i < len(args); i++ {
		switch {
		case isWord(args[i], "AUTH"):
			i++
		case isWord(args[i], "AUTH2"):
			i += 2
		case isWord(args[i], "KEYS"):
			if len(args[3]) > 0 {
				return dst, ErrKeys // both forms at once
			}
			for k := i + 1; k < len(args); k++ {
				dst = append(dst, k)
			}
			return dst, nil
		}
	}
	return append(dst, 3), nil
}

// ReadsByPattern tells a SORT or SORT_RO that reads keys which are not among its arguments: BY or GET with a pattern. Such a call gives
// the right answer only where all keys are on one server.
func (c *CommandInfo) ReadsByPattern(args [][]byte) bool {
	if c.special != specialSort && c.Name != "sort_ro" {
		return false
	}
	for i := 2; i+1 < len(args); i++ {
		switch {
		case isWord(args[i], "LIMIT"):
			i += 2
		case isWord(args[i], "STORE"):
			i++
		case isWord(args[i], "BY"):
			i++
			if hasStar(args[i]) {
				return true
			}
		case isWord(args[i], "GET"):
			i++
			if hasStar(args[i]) {
				return true
			}
		}
	}
	return false
}

// hasStar: a pattern without a star names no key; BY ignores it ("nosort") and GET yields nulls or, for "#", the element itself.
func hasStar(pattern []byte) bool {
	for _, c := range pattern {
		if c == '*' {
			return true
		}
	}
	return false
}
