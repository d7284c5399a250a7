package resp

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"ringside/internal/realredis"
)

// sortDocs brings the entries of COMMAND DOCS, and those of their subcommands, which the server lists in the order of a hash table, into
// the order of their names.
func sortDocs(v Value) Value {
	type pair struct{ name, docs Value }
	var pairs []pair
	for i := 0; i+1 < len(v.Elems); i += 2 {
		docs := v.Elems[i+1]
		for j := 0; j+1 < len(docs.Elems); j += 2 {
			if docs.Elems[j].Text == "subcommands" {
				docs.Elems[j+1] = sortDocs(docs.Elems[j+1])
			}
		}
		pairs = append(pairs, pair{v.Elems[i], docs})
	}
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.name.Text, b.name.Text) })
	v.Elems = nil
	for _, p := range pairs {
		v.Elems = append(v.Elems, p.name, p.docs)
	}
	return v
}

// TestDocs compares the texts about commands with those of a live server of the version that they are of.
func TestDocs(t *testing.T) {
	s := realredis.T(t)
	if version := liveVersion(t, s); !strings.HasPrefix(version, "7.0.") {
		t.Logf("redis-server is %s, the texts are of 7.0: not compared", version)
		return
	}
	replies := ask(t, s, request("COMMAND", "DOCS", "get", "nosuch", "CLIENT|KILL", "xadd"), request("HELLO", "3"), request("COMMAND", "DOCS"), request("COMMAND", "DOCS", "get", "nosuch", "CLIENT|KILL", "xadd"))
	live := sortDocs(decodeAll(t, replies[2])).Append(nil)
	if *update {
		var zipped bytes.Buffer
		w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(live); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("commanddocs.resp.gz", zipped.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	unzip, err := gzip.NewReader(bytes.NewReader(docsFile))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, live) {
		t.Error("commanddocs.resp.gz is not what COMMAND DOCS of the live server gives: run go generate ./resp")
	}
	if got := AppendDocs(nil, 3, nil); !bytes.Equal(got, live) {
		t.Error("AppendDocs of all commands in RESP3 is not what the live server gives")
	}
	some := [][]byte{[]byte("GET"), []byte("nosuch"), []byte("client|KILL"), []byte("xadd")}
	for proto, want := range map[int][]byte{2: replies[0], 3: replies[3]} {
		if got := AppendDocs(nil, proto, some); !bytes.Equal(got, want) {
			t.Errorf("RESP%d:\n got %.300q\nwant %.300q", proto, got, want)
		}
	}
}
