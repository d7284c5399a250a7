package sidecar

import (
	"log/slog"
	"net/netip"

	"ringside/sidecar/config"
)

// warnOfSolitude says that gossip.join names nobody else: most likely the same file was given to all with one address in it.
func warnOfSolitude(cfg *config.Config, log *slog.Logger) {
	if text := cfg.Solitude(); text != "" {
		log.Warn(text, "join", cfg.Gossip.Join)
	}
}

// warnOfExposure says which listeners others than this machine can reach. The configuration has made sure of a password; it cannot
// make sure of a network on which nobody listens.
func warnOfExposure(cfg *config.Config, log *slog.Logger) {
	for _, l := range []struct{ what, listen, secret string }{
		{"redis", cfg.Redis.Listen, "the password and all data"},
		{"admin", cfg.Admin.Listen, "the token and all answers"},
	} {
		if addr, err := netip.ParseAddrPort(l.listen); err == nil && !addr.Addr().IsLoopback() { // an error: a Unix socket
			log.Warn("other machines can connect here, and nothing is encrypted: "+l.secret+" can be read on the way", "listener", l.what, "listen", l.listen)
		}
	}
}
