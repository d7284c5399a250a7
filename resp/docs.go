package resp

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"
)

// docsFile is the answer of redis-server 7.0 to COMMAND DOCS in RESP3, its entries sorted by name, compressed. The texts are those of Redis
// 7.0 (copyright Salvatore Sanfilippo and Redis Ltd., BSD 3-clause license). TestDocs writes and checks it.
//
//go:embed commanddocs.resp.gz
var docsFile []byte

// commandDocs are the entries of docsFile.
type commandDocs struct {
	names   []string // sorted
	entries map[string][]byte
}

// loadDocs takes docsFile apart, once, when somebody asks for it.
var loadDocs = sync.OnceValue(func() commandDocs {
	d := commandDocs{entries: map[string][]byte{}}
	unzip, err := gzip.NewReader(bytes.NewReader(docsFile))
	if err != nil {
		return d
	}
	frame, err := io.ReadAll(unzip)
	if err != nil {
		return d
	}
	all, _ := ElementsOf(frame)
	for {
		element, ok := all.Next()
		if !ok {
			return d
		}
		text, _ := BulkOf(element)
		entry, _ := all.Next()
		d.add(string(text), entry)
		d.names = append(d.names, string(text))
	}
})

// add keeps an entry and those of its subcommands, which can be asked for by themselves.
func (d *commandDocs) add(name string, entry []byte) {
	d.entries[name] = entry
	fields, _ := ElementsOf(entry)
	for {
		field, ok := fields.Next()
		if !ok {
			return
		}
		value, _ := fields.Next()
		if text, _ := BulkOf(field); string(text) != "subcommands" {
			continue
		}
		subs, _ := ElementsOf(value)
		for {
			sub, ok := subs.Next()
			if !ok {
				break
			}
			text, _ := BulkOf(sub)
			entry, _ := subs.Next()
			d.entries[string(text)] = entry
		}
	}
}

// AppendDocs writes the answer to COMMAND DOCS with these names, in any case; no names: all commands. Names of no command are left out.
func AppendDocs(dst []byte, proto int, names [][]byte) []byte {
	d := loadDocs()
	found := d.names
	if len(names) > 0 {
		found = nil
		for _, n := range names {
			name := string(bytes.ToLower(n))
			if _, ok := d.entries[name]; ok {
				found = append(found, name)
			}
		}
	}
	dst = AppendMap(dst, proto, len(found))
	for _, name := range found {
		dst = appendIn(AppendBulk(dst, name), proto, d.entries[name])
	}
	return dst
}

// appendIn copies a RESP3 reply of texts, numbers and aggregates; in RESP2 all aggregates are arrays.
func appendIn(dst []byte, proto int, frame []byte) []byte {
	if proto >= 3 {
		return append(dst, frame...)
	}
	elements, ok := ElementsOf(frame)
	if !ok {
		return append(dst, frame...)
	}
	dst = AppendArray(dst, elements.Len())
	for {
		element, ok := elements.Next()
		if !ok {
			return dst
		}
		dst = appendIn(dst, proto, element)
	}
}
