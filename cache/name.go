package cache

import "strconv"

// Prefix starts the name of every entry on a cache server. Plain keys that start with it would collide with entries.
const Prefix = "rs:"

// AppendName appends the name of a row's entry, rs:<generation>.<flush>:<key>, to dst. generation is that of the key's cache vnode,
// flush that of the row's shard vnode: raising either puts all that was cached before out of reach. key is canonical.
func AppendName(dst []byte, generation, flush uint64, key []byte) []byte {
	dst = append(dst, Prefix...)
	dst = strconv.AppendUint(dst, generation, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, flush, 10)
	dst = append(dst, ':')
	return append(dst, key...)
}
