package cache

import (
	"strconv"
	"strings"

	"ringside/internal/failpoint"
)

// Prefix starts the name of every entry on a cache server. Plain keys that start with it would collide with entries.
const Prefix = "rs:"

// AppendName appends the name of a row's entry, rs:<generation>.<flush>:<key>, to dst. generation is that of the key's cache vnode,
// flush that of the row's shard vnode: raising either puts all that was cached before out of reach. key is canonical.
func AppendName(dst []byte, generation, flush uint64, key []byte) []byte {
	if failpoint.Without(failpoint.Generation) {
		generation = 1
	}
	dst = append(dst, Prefix...)
	dst = strconv.AppendUint(dst, generation, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, flush, 10)
	dst = append(dst, ':')
	return append(dst, key...)
}

// ParseName reads what AppendName made; false: it is not the name of an entry.
func ParseName(name string) (generation, flush uint64, key string, ok bool) {
	rest, ours := strings.CutPrefix(name, Prefix)
	numbers, key, named := strings.Cut(rest, ":")
	g, f, two := strings.Cut(numbers, ".")
	generation, err := strconv.ParseUint(g, 10, 64)
	if !ours || !named || !two || err != nil {
		return 0, 0, "", false
	}
	if flush, err = strconv.ParseUint(f, 10, 64); err != nil {
		return 0, 0, "", false
	}
	return generation, flush, key, true
}
