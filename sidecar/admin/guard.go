package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// refusal is why a request is not answered.
type refusal struct {
	status int
	reason string
}

// admit decides who may read. The token opens everything, from anywhere and by any name: no web page in anybody's browser knows it.
// Without it a request must come from this machine, straight from the program that made it, and must not have been made by a web page of
// somebody else, neither openly (Sec-Fetch-Site) nor under a name that was bound to 127.0.0.1 for the purpose (Host).
func admit(r *http.Request, token string) *refusal {
	given, hasToken := bearer(r.Header.Get("Authorization"))
	switch {
	case token != "" && hasToken && sameToken(given, token):
		return nil
	case !loopback(r.RemoteAddr) || forwarded(r.Header):
		switch {
		case token == "":
			return &refusal{http.StatusForbidden, "no admin.token is configured, so only this machine may read: connect to the loopback address"}
		case !hasToken:
			return &refusal{http.StatusUnauthorized, "requests from beyond this machine need the token (Authorization: Bearer TOKEN)"}
		}
		return &refusal{http.StatusUnauthorized, "the token is wrong"}
	case !nameable(r.Host):
		return &refusal{http.StatusMisdirectedRequest, "the Host header must be an IP address or localhost, unless the request carries the token"}
	case madeElsewhere(r.Header):
		return &refusal{http.StatusForbidden, "other web pages may not read this: open it by its address"}
	}
	return nil
}

// bearer takes the token out of an Authorization header.
func bearer(header string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// sameToken takes the same time wherever the two differ, and whatever their lengths.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// loopback reports whether addr, an IP:port, is an address of this machine that no other can use.
func loopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// forwarded reports whether a proxy on this machine passes on somebody else's request.
func forwarded(h http.Header) bool {
	return h.Get("Forwarded") != "" || h.Get("X-Forwarded-For") != "" || h.Get("X-Real-Ip") != ""
}

// nameable reports whether a Host header cannot be the name of somebody's own that resolves to this machine.
func nameable(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// madeElsewhere reports whether a browser says that a page from elsewhere made the request. Following a link to this place is fine.
func madeElsewhere(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document"
}
