package loadtest

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"

	"ringside/resp"
)

// values are what is written: a version, and filling that makes it as long as wanted. Not written to.
type values struct {
	keys     Keys
	text     bool
	version  string // what stands before the version
	between  string // what stands behind it, before the filling
	end      string
	filling  string
	min, max int
}

func newValues(p Plan, keys Keys) *values {
	v := &values{keys: keys, text: p.Text, version: "v", between: " ", filling: strings.Repeat("x", p.MaxSize), min: p.MinSize, max: p.MaxSize}
	if !p.Text {
		v.version, v.between, v.end = `{"`+p.VersionColumn+`":`, `,"`+p.TextColumn+`":"`, `"}`
	}
	return v
}

// fill draws how much filling a value has.
func (v *values) fill(r *rand.Rand) string { return v.filling[:v.min+r.IntN(v.max-v.min+1)] }

func (v *values) append(dst []byte, version int64, filling string) []byte {
	dst = append(dst, v.version...)
	dst = strconv.AppendInt(dst, version, 10)
	dst = append(dst, v.between...)
	dst = append(dst, filling...)
	return append(dst, v.end...)
}

// appendRead adds the request for a key. scratch is used for the key.
func (v *values) appendRead(dst, scratch []byte, key uint32) []byte {
	return resp.AppendCommand(dst, []byte("GET"), v.keys.Append(scratch[:0], key))
}

func (v *values) appendWrite(dst, scratch []byte, key uint32, version int64, filling string) []byte {
	dst = resp.AppendArray(dst, 3)
	dst = resp.AppendBulk(dst, "SET")
	dst = resp.AppendBulk(dst, v.keys.Append(scratch[:0], key))
	return resp.AppendBulk(dst, v.append(scratch[:0], version, filling))
}

// versionOf finds the version in what was read; 0 if there is none.
func (v *values) versionOf(value []byte) int64 {
	at := v.version[1:]
	if v.text {
		at = v.version
		if !bytes.HasPrefix(value, []byte(at)) {
			return 0
		}
	}
	i := bytes.Index(value, []byte(at))
	if i < 0 {
		return 0
	}
	var n int64
	for _, c := range value[i+len(at):] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
