package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"ringside/sidecar/config"
	"ringside/sidecar/proxy"
)

// access is how the cache servers are spoken to. It is immutable: the same *tls.Config is given out for a server each time, to the data
// plane and to what works beside it.
type access struct {
	common proxy.Credentials // for those that the configuration does not list
	own    map[string]proxy.Credentials
}

// newAccess reads the certificates. The error says which line of the configuration names what is of no use.
func newAccess(cfg *config.Config) (*access, error) {
	l := tlsLoader{cfg: cfg, loaded: map[config.TLS]*tls.Config{}}
	d := &cfg.DefaultCache
	a := &access{
		common: proxy.Credentials{Username: d.Username, Password: string(d.Password), TLS: l.load("default_cache.tls", d.TLS)},
		own:    map[string]proxy.Credentials{},
	}
	for i := range cfg.Caches {
		c := &cfg.Caches[i]
		cred := a.common
		if c.Username != "" || c.Password != "" {
			cred.Username, cred.Password = c.Username, string(c.Password)
		}
		cred.TLS = l.load(fmt.Sprintf("caches[%d].tls", i), c.TLS)
		a.own[c.Name] = cred
	}
	return a, config.Join(l.errs...)
}

// of returns how a cache server is spoken to.
func (a *access) of(server string) proxy.Credentials {
	if cred, ok := a.own[server]; ok {
		return cred
	}
	return a.common
}

// tlsLoader makes one tls.Config of each different setting.
type tlsLoader struct {
	cfg    *config.Config
	loaded map[config.TLS]*tls.Config
	errs   []error
}

func (l *tlsLoader) load(path string, t *config.TLS) *tls.Config {
	if t == nil {
		return nil
	}
	if c, ok := l.loaded[*t]; ok {
		return c
	}
	// Reconnecting is common (idle connections are closed), and a resumed session spares the server the costly part of it.
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	l.loaded[*t] = c
	if t.CA != "" {
		pool, err := authorities(t.CA)
		if err != nil {
			l.fault(path+".ca", err)
		}
		c.RootCAs = pool
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			l.fault(path+".cert", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func (l *tlsLoader) fault(path string, err error) {
	l.errs = append(l.errs, l.cfg.At(path, fmt.Errorf("%s: %w", path, err)))
}

func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("there is no PEM certificate in " + file)
	}
	return pool, nil
}
