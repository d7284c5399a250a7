package admin

import (
	"net/http"
	"testing"
)

func TestAdmit(t *testing.T) {
	bearerOf := func(s string) string { return "Authorization: Bearer " + s }
	for _, test := range []struct {
		name, remote, host, token string
		headers                   []string
		want                      int // 0: admitted
	}{
		{"this machine", here, "127.0.0.1:6381", token, nil, 0},
		{"this machine, no token configured", here, "127.0.0.1:6381", "", nil, 0},
		{"IPv6", "[::1]:5000", "[::1]:6381", token, nil, 0},
		{"IPv4 in IPv6", "[::ffff:127.0.0.1]:5000", "127.0.0.1", token, nil, 0},
		{"by name", here, "localhost:6381", token, nil, 0},
		{"by name, no port", here, "LOCALHOST", token, nil, 0},
		{"by name, absolute", here, "localhost.:6381", token, nil, 0},
		{"bare IPv6 host", here, "[::1]", token, nil, 0},
		{"another token than this sidecar's does no harm", here, "127.0.0.1", token, []string{bearerOf("other")}, 0},
		{"a name bound to this machine", here, "evil.example:6381", token, nil, http.StatusMisdirectedRequest},
		{"a name that looks like ours", here, "localhost.evil.example", token, nil, http.StatusMisdirectedRequest},
		{"an address in a name", here, "127.0.0.1.evil.example", token, nil, http.StatusMisdirectedRequest},
		{"no host", here, "", token, nil, http.StatusMisdirectedRequest},
		{"a name, with the token", here, "ringside.svc:6381", token, []string{bearerOf(token)}, 0},

		{"elsewhere", there, "10.0.0.9:6381", token, nil, http.StatusUnauthorized},
		{"elsewhere, with the token", there, "10.0.0.9:6381", token, []string{bearerOf(token)}, 0},
		{"elsewhere, scheme in lower case", there, "10.0.0.9:6381", token, []string{"Authorization: bearer " + token}, 0},
		{"elsewhere, wrong token", there, "10.0.0.9:6381", token, []string{bearerOf(token + "x")}, http.StatusUnauthorized},
		{"elsewhere, empty token", there, "10.0.0.9:6381", token, []string{"Authorization: Bearer "}, http.StatusUnauthorized},
		{"elsewhere, basic", there, "10.0.0.9:6381", token, []string{"Authorization: Basic " + token}, http.StatusUnauthorized},
		{"elsewhere, no token configured", there, "10.0.0.9:6381", "", nil, http.StatusForbidden},
		{"elsewhere, empty token for none configured", there, "10.0.0.9:6381", "", []string{"Authorization: Bearer "}, http.StatusForbidden},
		{"an unreadable address", "@", "127.0.0.1", token, nil, http.StatusUnauthorized},
		{"a proxy on this machine", here, "127.0.0.1", token, []string{"X-Forwarded-For: 10.1.2.3"}, http.StatusUnauthorized},
		{"a proxy on this machine, standard header", here, "127.0.0.1", token, []string{"Forwarded: for=10.1.2.3"}, http.StatusUnauthorized},

		{"our own page", here, "127.0.0.1", token, []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors"}, 0},
		{"typed in", here, "127.0.0.1", token, []string{"Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"}, 0},
		{"a link", here, "127.0.0.1", token, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 0},
		{"a frame", here, "127.0.0.1", token, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, http.StatusForbidden},
		{"another page's image", here, "127.0.0.1", token, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}, http.StatusForbidden},
		{"another port of this machine", here, "127.0.0.1", token, []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"}, http.StatusForbidden},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(http.MethodGet, "/ring", test.headers...)
			r.RemoteAddr, r.Host = test.remote, test.host
			got := 0
			if no := admit(r, test.token); no != nil {
				got = no.status
			}
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestEveryPathIsGuarded includes those that do not exist: whoever may not read learns nothing at all.
func TestEveryPathIsGuarded(t *testing.T) {
	s := newSetup(t, small(t))
	s.cfg.Pprof = true
	server := s.server(t)
	paths := []string{"/nothing", "/debug/pprof/heap"}
	for path := range server.routes {
		paths = append(paths, path)
	}
	for path := range server.verbs {
		paths = append(paths, path)
	}
	for _, path := range paths {
		r := request(http.MethodGet, path)
		r.RemoteAddr = there
		w := answer(server, r)
		if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") != `Bearer realm="ringside"` {
			t.Errorf("%s without the token: %d", path, w.Code)
		}
		r = request(http.MethodGet, path, "Authorization: Bearer "+token)
		r.RemoteAddr = there
		if w = answer(server, r); w.Code == http.StatusUnauthorized {
			t.Errorf("%s with the token: %d", path, w.Code)
		}
	}
}
