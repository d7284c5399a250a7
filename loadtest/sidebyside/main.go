package main

import (
	"context"
	"io"

	"ringside/loadtest/gauge"
)

// options are the flags.
type options struct {
	gauge.Options
	Before   string `help:"Another ringside program, measured in the same rounds in place of twemproxy: what a change has brought." type:"path"`
	MbufSize int    `default:"16384" help:"Size of twemproxy's buffers, in bytes; 16384 is its own default."`
	BasePort int    `default:"18000" help:"First of the ports of the cluster that row hits are measured on."`
}

func main() {
	var o options
	gauge.Suite{
		Name: "sidebyside", About: "Measures ringside beside twemproxy.", Flags: &o, Options: &o.Options, Names: names(),
		Start: func(ctx context.Context, _ io.Writer) ([]gauge.Measure, string, func() error, error) {
			r, err := newRig(ctx, o)
			if err != nil {
				return nil, "", nil, err
			}
			var list []gauge.Measure
			for _, m := range measures() {
				list = append(list, gauge.Measure{Name: m.name, Run: func(ctx context.Context) ([]gauge.Figure, error) { return m.run(ctx, r) }})
			}
			return list, "ringside : " + r.rival.name, r.stop, nil
		},
	}.Main()
}

// measure is one part of the table.
type measure struct {
	name string
	run  func(ctx context.Context, r *rig) ([]gauge.Figure, error)
}

func measures() []measure {
	all := []measure{}
	for _, m := range requestMeasures() {
		all = append(all, measure{m.name, m.run})
	}
	return append(all, measure{"rows", rowHits}, measure{"tls", overTLS}, measure{"mget", mget}, measure{"large", largeValues}, measure{"idle", idleClients},
		measure{"allocations", allocations})
}

func names() []string {
	var list []string
	for _, m := range measures() {
		list = append(list, m.name)
	}
	return list
}
