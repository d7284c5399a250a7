package resp

import (
	"bytes"
	"flag"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/realredis"
)

var update = flag.Bool("update", false, "write table.go from the COMMAND answer of a live redis-server 7.0")

// ask sends requests to a live server, each on the same connection, and returns the frames of its replies.
func ask(t testing.TB, s *realredis.Server, requests ...[]byte) [][]byte {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(bytes.Join(requests, nil)); err != nil {
		t.Fatal(err)
	}
	var (
		frames [][]byte
		buf    []byte
		piece  = make([]byte, 64<<10)
		scan   Scanner
	)
	for len(frames) < len(requests) {
		n, err := scan.Next(buf)
		if err != nil {
			t.Fatalf("%v in %.200q", err, buf)
		}
		if n > 0 {
			frames = append(frames, bytes.Clone(buf[:n]))
			buf = buf[n:]
			continue
		}
		m, err := conn.Read(piece)
		if err != nil {
			t.Fatalf("after %d of %d replies: %v", len(frames), len(requests), err)
		}
		buf = append(buf, piece[:m]...)
	}
	return frames
}

func request(words ...string) []byte { return AppendCommandString(nil, words...) }

// decodeAll decodes one whole reply.
func decodeAll(t testing.TB, frame []byte) Value {
	t.Helper()
	v, n, err := Decode(frame)
	if err != nil || n != len(frame) {
		t.Fatalf("decoded %d of %d bytes: %v", n, len(frame), err)
	}
	return v
}

func liveVersion(t testing.TB, s *realredis.Server) string {
	t.Helper()
	info := decodeAll(t, ask(t, s, request("INFO", "server"))[0]).Text
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, "\r\n")
	return version
}

// TestTable compares the table with the COMMAND answer of a live server: byte for byte when that is the version that the table is of,
// else (a developer's machine may have a newer one) by what routing depends on.
func TestTable(t *testing.T) {
	s := realredis.T(t)
	version := liveVersion(t, s)
	replies := ask(t, s, request("COMMAND"), request("HELLO", "3"), request("COMMAND"))
	live := commandsOf(t, decodeAll(t, replies[0]))
	if !strings.HasPrefix(version, "7.0.") {
		compareRouting(t, version, live)
		return
	}
	if *update {
		if err := os.WriteFile("table.go", tableSource(t, withNewer(live)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	source, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(source, tableSource(t, withNewer(live))) {
		t.Errorf("table.go is not what the COMMAND answer of redis-server %s gives: run go generate ./resp", version)
	}
	compareEntries(t, 2, replies[0])
	compareEntries(t, 3, replies[2])
}

// compareEntries compares AppendInfo with every entry of a live COMMAND answer.
func compareEntries(t *testing.T, proto int, reply []byte) {
	t.Helper()
	entries := decodeAll(t, reply).Elems
	if len(entries) != len(Commands()) {
		t.Fatalf("the server has %d commands, the table %d", len(entries), len(Commands()))
	}
	for _, entry := range entries {
		name := entry.Elems[0].Text
		c := Lookup([]byte(name))
		if c == nil {
			t.Errorf("no %s in the table", name)
			continue
		}
		known := *c
		known.Subcommands = slices.DeleteFunc(slices.Clone(c.Subcommands), isNewer)
		// The server lists subcommands in the order of a hash table.
		slices.SortFunc(entry.Elems[9].Elems, func(a, b Value) int { return strings.Compare(a.Elems[0].Text, b.Elems[0].Text) })
		if want, got := entry.Append(nil), known.AppendInfo(nil, proto); !bytes.Equal(want, got) {
			t.Errorf("RESP%d entry of %s:\n got %q\nwant %q", proto, name, got, want)
		}
	}
}

// compareRouting checks that another version of Redis finds the same keys by position.
func compareRouting(t *testing.T, version string, live []CommandInfo) {
	t.Helper()
	t.Logf("redis-server is %s, the table is of 7.0: comparing key positions only", version)
	for _, l := range live {
		c := Lookup([]byte(l.Name))
		if c == nil {
			t.Logf("%s is new in %s", l.Name, version)
			continue
		}
		if c.First != l.First || c.Last != l.Last || c.Step != l.Step {
			t.Errorf("%s: keys %d..%d step %d in %s, %d..%d step %d here", l.Name, l.First, l.Last, l.Step, version, c.First, c.Last, c.Step)
		}
	}
}
