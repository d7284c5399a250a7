package membership

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"pgregory.net/rapid"
)

func longest() record {
	return record{
		Name: strings.Repeat("n", maxName), Boot: strings.Repeat("b", maxBoot), Seq: math.MaxUint64, Leaving: true,
		Hint:  Hint{Epoch: math.MaxUint64, Digest: strings.Repeat("d", maxDigest)},
		Votes: longestVotes(), VotesSeq: math.MaxUint64,
	}
}

func TestSizes(t *testing.T) {
	if n := len(appendRecord(nil, longest())); n != maxRecord {
		t.Errorf("the longest record takes %d bytes, maxRecord is %d", n, maxRecord)
	}
	if msg, n := encodeHints([]record{longest()}, maxPacket); len(n) != 1 || len(msg) > maxPacket {
		t.Error("the longest record does not fit a packet")
	}
	// A packet must fit memberlist's buffer beside its own framing, the longest label and encryption.
	const label, encryption, framing = 2 + maxCluster + len("ringside/"), 45, 16
	if room := memberlist.DefaultLANConfig().UDPBufferSize - label - encryption - framing; maxPacket > room {
		t.Errorf("packets of %d bytes do not fit into %d", maxPacket, room)
	}
	if maxMeta > memberlist.MetaMaxSize || len(clusterLabel(strings.Repeat("c", maxCluster))) > memberlist.LabelMaxSize {
		t.Error("meta or label would be refused by memberlist")
	}
}

func TestHintsRespectTheLimitAndOrder(t *testing.T) {
	var records []record
	for i := range 100 {
		records = append(records, record{Name: fmt.Sprintf("sidecar-%d", i), Boot: "0123456789abcdef", Seq: 1, Hint: Hint{Epoch: 1, Digest: "0123456789abcdef"}})
	}
	for _, limit := range []int{0, 10, 60, 300, maxPacket, maxState} {
		msg, taken := encodeHints(records, limit)
		n := len(taken)
		if len(msg) > limit {
			t.Fatalf("limit %d: %d bytes", limit, len(msg))
		}
		if n == 0 {
			if msg != nil {
				t.Fatalf("limit %d: a message without records", limit)
			}
			continue
		}
		m, err := decodeMessage(msg)
		if err != nil || !reflect.DeepEqual(m.records, records[:n]) {
			t.Fatalf("limit %d: %v, %d records of %d", limit, err, len(m.records), n)
		}
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(limit int, least int) string {
			return rapid.StringN(-1, -1, limit).Filter(func(s string) bool { return len(s) >= least }).Draw(t, "text")
		}
		r := record{
			Name: text(maxName, 1), Boot: text(maxBoot, 0), Seq: rapid.Uint64Min(1).Draw(t, "seq"), Leaving: rapid.Bool().Draw(t, "leaving"),
			Hint: Hint{Epoch: rapid.Uint64().Draw(t, "epoch"), Digest: text(maxDigest, 0)},
		}
		if rapid.Bool().Draw(t, "votes") {
			r.Votes, _ = normalVotes(rapid.SliceOfN(rapid.StringMatching(`[ab]{0,4}-?[0-9]{0,3}`), 0, 2*maxVotes).Draw(t, "names"))
			r.VotesSeq = rapid.Uint64Range(1, r.Seq).Draw(t, "votes seq")
		}
		if m, err := decodeMessage(encodeRequest(r)); err != nil || m.kind != kindRequest || !reflect.DeepEqual(m.records[0], r) {
			t.Fatalf("request: %+v, %v", m, err)
		}
		body := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "body")
		deflated, err := deflate(body)
		if err != nil {
			t.Fatal(err)
		}
		msg, err := encodeTopology(r, deflated)
		if err != nil {
			t.Fatal(err)
		}
		m, err := decodeMessage(msg)
		if err != nil || m.kind != kindTopology || !reflect.DeepEqual(m.records[0], r) {
			t.Fatalf("topology: %+v, %v", m, err)
		}
		if got, err := inflate(m.body); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("body: %v", err)
		}
	})
}

func TestLaterFieldsOfARecordAreSkipped(t *testing.T) {
	r := record{Name: "a", Boot: "b", Seq: 5, Hint: Hint{Epoch: 3, Digest: "d"}, Votes: []string{"c1", "c2"}, VotesSeq: 4}
	plain := appendRecord(nil, r)
	longer := append([]byte{plain[0] + 3}, plain[1:]...)
	longer = append(longer, 7, 7, 7)
	msg := append([]byte{kindHints, messageVersion, 2}, longer...)
	msg = append(msg, plain...)
	m, err := decodeMessage(msg)
	if err != nil || !reflect.DeepEqual(m.records, []record{r, r}) {
		t.Fatalf("%+v, %v", m, err)
	}
}

func TestBadMessages(t *testing.T) {
	good := encodeRequest(record{Name: "a", Boot: "b", Seq: 1})
	for name, c := range map[string]struct {
		msg  []byte
		want error
	}{
		"nothing":                {nil, errMessage},
		"kind alone":             {[]byte{kindHints}, errMessage},
		"unknown kind":           {[]byte{77, messageVersion}, errKind},
		"unknown version":        {[]byte{kindHints, 9, 0}, errKind},
		"cut short":              {good[:len(good)-1], errMessage},
		"count beyond the end":   {binary.AppendUvarint([]byte{kindHints, messageVersion}, 1<<40), errMessage},
		"no name":                {encodeRequest(record{Boot: "b", Seq: 1}), errMessage},
		"sequence number 0":      {encodeRequest(record{Name: "a"}), errMessage},
		"too long":               {make([]byte, maxReliable+1), errTooLong},
		"record beyond the end":  {[]byte{kindRequest, messageVersion, 200, 1}, errMessage},
		"name longer than fits":  {[]byte{kindRequest, messageVersion, 3, 200, 'a', 'b'}, errMessage},
		"endless record length":  {[]byte{kindRequest, messageVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, errMessage},
		"empty record in a list": {[]byte{kindHints, messageVersion, 1, 0}, errMessage},
	} {
		if _, err := decodeMessage(c.msg); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := encodeTopology(record{Name: "a"}, make([]byte, maxReliable)); !errors.Is(err, errTooLong) {
		t.Errorf("a topology that is too long: %v", err)
	}
	if _, err := deflate(make([]byte, maxTopology+1)); !errors.Is(err, errTooLong) {
		t.Errorf("deflate: %v", err)
	}
}

func TestInflateStops(t *testing.T) {
	full, err := deflate(make([]byte, maxTopology))
	if err != nil {
		t.Fatal(err)
	}
	if body, err := inflate(full); err != nil || len(body) != maxTopology {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	if _, err := inflate(bombed(t)); !errors.Is(err, errTooLong) {
		t.Fatalf("a bomb: %v", err)
	}
}

// bombed returns a small message that inflates to more than is allowed.
func bombed(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, maxTopology+1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestMeta(t *testing.T) {
	m := Meta{Boot: "0123456789abcdef", Started: time.UnixMilli(1_700_000_000_123), Version: "v1.2.3", Redis: "10.0.0.1:6380", Admin: "[::1]:6381"}
	b, err := m.encode()
	if err != nil || len(b) > maxMeta {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if got := decodeMeta(b); got != m {
		t.Errorf("got %+v", got)
	}
	if got := decodeMeta(append(b, "later fields"...)); got != m {
		t.Errorf("with later fields: %+v", got)
	}
	b[0] = 9
	if got := decodeMeta(b); got != (Meta{Boot: m.Boot}) {
		t.Errorf("of an unknown version: %+v", got)
	}
	for _, garbage := range [][]byte{nil, {}, {0}, {1}, {1, 200}, {1, 3, 'a'}, []byte("plain text of another program"), bytes.Repeat([]byte{255}, 512)} {
		if got := decodeMeta(garbage); got.Version != "" || got.Redis != "" {
			t.Errorf("garbage %q: %+v", garbage, got)
		}
	}
	for _, bad := range []Meta{
		{Boot: strings.Repeat("b", maxBoot+1)}, {Version: strings.Repeat("v", maxMetaField+1)},
		{Version: strings.Repeat("v", maxMetaField), Redis: strings.Repeat("r", maxMetaField), Admin: strings.Repeat("a", maxMetaField)},
	} {
		if _, err := bad.encode(); err == nil || !strings.HasPrefix(err.Error(), "gossip: ") {
			t.Errorf("%+v was encoded: %v", bad, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	msg, _ := encodeHints([]record{longest(), {Name: "a", Seq: 1}, {Name: "b", Seq: 2, Votes: []string{"c1", "c12"}, VotesSeq: 2}}, maxState)
	f.Add(msg)
	f.Add(encodeRequest(longest()))
	deflated, _ := deflate([]byte("a topology"))
	top, _ := encodeTopology(longest(), deflated)
	f.Add(top)
	f.Add([]byte{kindHints, messageVersion, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		for _, r := range m.records {
			if r.Name == "" || len(r.Name) > maxName || len(r.Boot) > maxBoot || r.Seq == 0 || len(r.Hint.Digest) > maxDigest ||
				len(appendRecord(nil, r)) > maxRecord {
				t.Fatalf("accepted %+v", r)
			}
		}
		switch m.kind {
		case kindHints:
			// What was read can be written, and reads the same.
			again, taken := encodeHints(m.records, math.MaxInt)
			if len(taken) != len(m.records) {
				t.Fatalf("%d of %d records were written", len(taken), len(m.records))
			}
			if len(taken) > 0 {
				if m2, err := decodeMessage(again); err != nil || !reflect.DeepEqual(m2.records, m.records) {
					t.Fatalf("round trip: %v", err)
				}
			}
		case kindTopology:
			if body, err := inflate(m.body); err == nil && len(body) > maxTopology {
				t.Fatal("inflated too far")
			}
		}
	})
}

func FuzzMeta(f *testing.F) {
	b, _ := Meta{Boot: "b", Started: time.UnixMilli(5), Version: "v", Redis: "r", Admin: "a"}.encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := decodeMeta(b)
		if again, err := m.encode(); err == nil && m.Version != "" {
			if m2 := decodeMeta(again); m2 != m {
				t.Fatalf("%+v became %+v", m, m2)
			}
		}
	})
}
