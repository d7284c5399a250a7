package simulate

import (
	"hash/crc32"
	"strconv"
)

// Exercise is a known one: the ids 1 to 100,000, hashed by crc32 of their decimal text, on two servers that become three.
type Exercise struct {
	IDs int `json:"ids"`
	// Modulo is how many ids move when the server is the hash modulo their number.
	Modulo int `json:"modulo_moved"`
	// Buckets is how many move when 16 buckets stand in a table, eight on each server, and the third is given the last three of each.
	Buckets int `json:"buckets_moved"`
}

// RunExercise works it out.
func RunExercise() Exercise {
	const buckets, each, given = 16, 8, 3
	e := Exercise{IDs: 100_000}
	for id := 1; id <= e.IDs; id++ {
		h := crc32.ChecksumIEEE(strconv.AppendInt(nil, int64(id), 10))
		if h%2 != h%3 {
			e.Modulo++
		}
		if h%buckets%each >= each-given {
			e.Buckets++
		}
	}
	return e
}
