package resp

import (
	"fmt"
	"strings"
	"testing"
)

var (
	value100 = strings.Repeat("v", 100)
	getBytes = request("GET", "memtier-123456")
	setBytes = request("SET", "memtier-123456", value100)
)

func benchmarkParser(b *testing.B, input []byte) {
	var p Parser
	b.SetBytes(int64(len(input)))
	b.ReportAllocs()
	for b.Loop() {
		for rest := input; len(rest) > 0; {
			cmd, n, err := p.Next(rest)
			if n == 0 || err != nil || len(cmd.Args) < 2 {
				b.Fatal(cmd, n, err)
			}
			rest = rest[n:]
		}
	}
}

func BenchmarkParseGet(b *testing.B) { benchmarkParser(b, getBytes) }
func BenchmarkParseSet(b *testing.B) { benchmarkParser(b, setBytes) }
func BenchmarkParseGet16(b *testing.B) {
	benchmarkParser(b, []byte(strings.Repeat(string(getBytes), 16)))
}

func BenchmarkParseMGet10k(b *testing.B) {
	words := []string{"MGET"}
	for i := range 10000 {
		words = append(words, fmt.Sprint("key:", i))
	}
	benchmarkParser(b, request(words...))
}

func BenchmarkParseInline(b *testing.B) { benchmarkParser(b, []byte("GET memtier-123456\r\n")) }

func BenchmarkLookup(b *testing.B) {
	for _, name := range []string{"GET", "set", "ZREVRANGEBYSCORE", "georadiusbymember_ro", "nosuch"} {
		b.Run(name, func(b *testing.B) {
			word := []byte(name)
			b.ReportAllocs()
			for b.Loop() {
				if c := Lookup(word); c == nil && name != "nosuch" {
					b.Fatal(name)
				}
			}
		})
	}
}

func BenchmarkResolveSet(b *testing.B) {
	args := [][]byte{[]byte("SET"), []byte("k"), []byte("v")}
	b.ReportAllocs()
	for b.Loop() {
		if c, err := Resolve(args); err != nil || c.First != 1 {
			b.Fatal(err)
		}
	}
}

func BenchmarkKeysMGet16(b *testing.B) {
	args := [][]byte{[]byte("MGET")}
	for i := range 16 {
		args = append(args, fmt.Append(nil, "key:", i))
	}
	c := Lookup(args[0])
	dst := make([]int, 0, 16)
	b.ReportAllocs()
	for b.Loop() {
		if keys, err := c.Keys(args, dst[:0]); len(keys) != 16 || err != nil {
			b.Fatal(keys, err)
		}
	}
}

func benchmarkScanner(b *testing.B, reply []byte) {
	var s Scanner
	b.SetBytes(int64(len(reply)))
	b.ReportAllocs()
	for b.Loop() {
		if n, err := s.Next(reply); n != len(reply) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkScanStatus(b *testing.B)  { benchmarkScanner(b, []byte("+OK\r\n")) }
func BenchmarkScanBulk100(b *testing.B) { benchmarkScanner(b, AppendBulk(nil, value100)) }

func array10k() []byte {
	reply := AppendArray(nil, 10000)
	for range 10000 {
		reply = AppendBulk(reply, value100)
	}
	return reply
}

func BenchmarkScanArray10k(b *testing.B) { benchmarkScanner(b, array10k()) }

func BenchmarkElements10k(b *testing.B) {
	reply := array10k()
	b.ReportAllocs()
	for b.Loop() {
		e, _ := ElementsOf(reply)
		n := 0
		for _, ok := e.Next(); ok; _, ok = e.Next() {
			n++
		}
		if n != 10000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkAppendNulls3(b *testing.B) {
	reply := AppendBulk(nil, value100)
	dst := make([]byte, 0, 200)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendNulls3(dst[:0], reply)
	}
}

func BenchmarkAppendCommand(b *testing.B) {
	args := [][]byte{[]byte("SET"), []byte("k"), []byte(value100)}
	dst := make([]byte, 0, 200)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendCommand(dst[:0], args...)
	}
}
