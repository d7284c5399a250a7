package ring

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestGolden (P1) pins placements and plans to the last vnode. Sidecars of different versions run side by side, and shard tables were made
// by earlier versions: a change that this test notices needs new Params, so that two ways of placing never mix silently.
func TestGolden(t *testing.T) {
	var out strings.Builder
	out.WriteString("# name: vnodes per server; first owners; SHA-256 of the table as little-endian 16-bit words. See golden_test.go before changing a line.\n")
	line := func(name string, table []uint16, servers int) {
		bytes := make([]byte, 0, 2*Vnodes)
		for _, owner := range table {
			bytes = binary.LittleEndian.AppendUint16(bytes, owner)
		}
		fmt.Fprintf(&out, "%s: %v; %v; %x\n", name, Counts(table, servers), table[:12], sha256.Sum256(bytes))
	}
	equal := []Node{{"c1", 1}, {"c2", 1}, {"c3", 1}}
	unequal := []Node{{"c1", 1}, {"c2", 2}, {"c3", 3}, {"c4", 4}, {"c5", 0}}
	exact := DefaultParams()
	exact.CapPPM = 0
	line("cache, equal", mustPlace(t, equal, DefaultParams()).Table(), len(equal))
	line("cache, weights 1 2 3 4 0", mustPlace(t, unequal, DefaultParams()).Table(), len(unequal))
	line("cache, weights 1 2 3 4 0, exact", mustPlace(t, unequal, exact).Table(), len(unequal))
	shards := []Node{{"s1", 1}, {"s2", 1}, {"s3", 2}}
	two := mustPlan(t, nil, shards[:2])
	line("shards, two", two, 2)
	line("shards, third joins with weight 2", mustPlan(t, two, shards), len(shards))

	want, err := os.ReadFile("testdata/placement.golden")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("placement has changed; it is now\n%s\nand testdata/placement.golden says\n%s", &out, want)
	}
}
