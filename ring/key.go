package ring

import "bytes"

// CacheKey returns the part of key that places it on a cache server: what stands between the first '{' and the first '}' after it,
// if that is not empty, else the whole key. This is the rule of Redis Cluster, so keys that were made to live together there do so here.
// The result aliases key.
func CacheKey(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	rest := key[open+1:]
	end := bytes.IndexByte(rest, '}')
	if end <= 0 {
		return key
	}
	return rest[:end]
}
