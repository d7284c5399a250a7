package sidecar

import (
	"testing"

	"ringside/ring"
	"ringside/sidecar/topology"
)

// A sidecar without a catalog that is alone hears of no topology but its own, and goes on with it.
func TestSidecarAloneWithoutACatalogKeepsItsTopology(t *testing.T) {
	own, err := topology.New(topology.Content{Epoch: 1, Params: ring.DefaultParams()})
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed()
	f.topology = &topology.Holder{}
	f.topology.Publish(own)
	f.step(t.Context()) // the first step asks: nothing was polled yet
	if got := f.topology.Current(); got != own {
		t.Errorf("the topology became %v, want the sidecar's own", got)
	}
	if f.behind() {
		t.Error("the sidecar counts as behind although nobody told of another topology")
	}
}
