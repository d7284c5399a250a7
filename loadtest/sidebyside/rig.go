package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"ringside/internal/childproc"
	"ringside/internal/realredis"
	"ringside/internal/twemproxy"
	"ringside/loadtest/gauge"
)

// rig is the servers, and the proxies in front of them.
type rig struct {
	o        options
	dir      string
	ringside string // the program

	servers []*realredis.Server
	proxies []*proxy // all that were started
	subject *proxy   // what is measured
	rival   *proxy   // what it is compared with
}

// serverCount is how many redis-servers the keys lie on.
const serverCount = 3

// proxy is one running proxy.
type proxy struct {
	name string
	addr string
	proc *childproc.Process
}

func newRig(ctx context.Context, o options) (_ *rig, err error) {
	if err := gauge.RaiseDescriptorLimit(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sidebyside-")
	if err != nil {
		return nil, err
	}
	r := &rig{o: o, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.ringside, err = o.Build(ctx, dir); err != nil {
		return nil, err
	}
	for range serverCount {
		s, err := realredis.Start(ctx, realredis.Options{})
		if err != nil {
			return nil, err
		}
		r.servers = append(r.servers, s)
	}
	if r.subject, err = r.startRingside(ctx, "ringside", r.ringside, r.addrs(), ""); err != nil {
		return nil, err
	}
	if o.Before != "" {
		r.rival, err = r.startRingside(ctx, "before", o.Before, r.addrs(), "")
	} else {
		r.rival, err = r.startTwemproxy(ctx)
	}
	return r, err
}

// stop ends everything, proxies first. It may be called again.
func (r *rig) stop() error {
	var errs []error
	for _, p := range r.proxies {
		errs = append(errs, p.stop())
	}
	for _, s := range r.servers {
		errs = append(errs, s.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// stopGrace is longer than a proxy takes to let its clients go.
const stopGrace = 15 * time.Second

func (p *proxy) stop() error { return p.proc.Stop(syscall.SIGTERM, stopGrace) }

func (r *rig) addrs() []string {
	var list []string
	for _, s := range r.servers {
		list = append(list, s.Addr())
	}
	return list
}

// startRingside starts a sidecar that serves plain keys only: no catalog, no shards. It speaks TLS with the servers if it is given the file of
// an authority to trust.
func (r *rig) startRingside(ctx context.Context, name, program string, servers []string, authority string) (*proxy, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("name: %s\ndata_dir: %q\nredis: { listen: %q, max_clients: 20000 }\nadmin: { listen: %q }\ngossip: { listen: %q, cluster: %q }\ncaches:\n",
		name, filepath.Join(r.dir, fmt.Sprint(name, ports[0])), ports[0], ports[1], ports[2], "sidebyside-"+strconv.Itoa(os.Getpid())+"-"+name)
	for i, addr := range servers {
		text += fmt.Sprintf("  - { name: c%d, addr: %q }\n", i+1, addr)
	}
	if authority != "" {
		text += fmt.Sprintf("default_cache: { tls: { ca: %q } }\n", authority)
	}
	file := filepath.Join(r.dir, fmt.Sprintf("%s%d.yaml", name, len(r.proxies)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return r.start(ctx, name, ports[0], childproc.Options{Path: program, Args: []string{"serve", "-c", file}})
}

// startTwemproxy starts nutcracker, with the same servers.
func (r *rig) startTwemproxy(ctx context.Context) (*proxy, error) {
	s, err := twemproxy.Start(ctx, twemproxy.Options{Servers: r.addrs(), Dir: r.dir, MbufSize: r.o.MbufSize})
	if err != nil {
		return nil, err
	}
	p := &proxy{name: "twemproxy", addr: s.Addr, proc: s.Process}
	r.proxies = append(r.proxies, p)
	return p, nil
}

// startLimit bounds the start of a proxy.
const startLimit = 20 * time.Second

func (r *rig) start(ctx context.Context, name, addr string, o childproc.Options) (*proxy, error) {
	proc, err := childproc.Start(o)
	if err != nil {
		return nil, err
	}
	p := &proxy{name: name, addr: addr, proc: proc}
	r.proxies = append(r.proxies, p)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		c, err := gauge.Dial(ctx, addr)
		if err == nil {
			_, err = c.Ask("GET", "key")
			c.Hangup()
		}
		if err == nil {
			return p, nil
		}
		select {
		case <-proc.Done():
			return nil, fmt.Errorf("%s has ended: %w", name, errors.Join(proc.Err(), errors.New(proc.Output())))
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not answer: %w; %s", name, err, proc.Output())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freePorts returns addresses of 127.0.0.1.
func freePorts(n int) ([]string, error) {
	var list []string
	for range n {
		port, err := childproc.FreePort()
		if err != nil {
			return nil, err
		}
		list = append(list, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	return list, nil
}
