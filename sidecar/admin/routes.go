package admin

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// routes maps exact paths to what answers them; a path that ends in a slash, other than the root, stands for all below it.
type routes map[string]http.Handler

const pprofPath = "/debug/pprof/"

// newRoutes is all that can be read; what changes something is beside it, see verbs.
func (s *Server) newRoutes() routes {
	r := routes{
		"/":             http.RedirectHandler("/ring", http.StatusFound),
		"/ring":         http.HandlerFunc(s.serveRing),
		"/ring/lookup":  http.HandlerFunc(s.serveLookup),
		"/ring/preview": http.HandlerFunc(s.servePreview),
		"/history":      http.HandlerFunc(s.serveHistory),
		"/topology":     http.HandlerFunc(s.serveTopology),
		"/members":      http.HandlerFunc(s.serveMembers),
		"/pools":        http.HandlerFunc(s.servePools),
		hotKeysPath:     http.HandlerFunc(s.serveHotKeys),
		movesPath:       http.HandlerFunc(s.serveMoves),
		movePlanPath:    http.HandlerFunc(s.serveMovePlan),
		moveVerifyPath:  http.HandlerFunc(s.serveMoveVerify),
		changesPath:     http.HandlerFunc(s.serveChanges),
		"/invalidation": http.HandlerFunc(s.serveInvalidation),
		verifyPath:      http.HandlerFunc(s.serveVerify),
		"/metrics":      s.metricsHandler(),
		"/healthz":      http.HandlerFunc(s.serveHealth),
		"/readyz":       http.HandlerFunc(s.serveReady),
	}
	if s.cfg.Pprof {
		r[pprofPath] = http.HandlerFunc(servePprof)
	}
	return r
}

func (r routes) find(path string) http.Handler {
	if strings.HasPrefix(path, pprofPath) {
		return r[pprofPath]
	}
	return r[path]
}

// paths lists all paths that there are.
func (s *Server) paths() string {
	all := slices.Collect(maps.Keys(s.routes))
	all = slices.AppendSeq(all, maps.Keys(s.verbs))
	all = slices.AppendSeq(all, maps.Keys(s.orders))
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="ringside"`)
	}
	writeError(w, r, no.status, "%s", no.reason)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recoverPanic(w, r)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cache-Control", "no-cache") // keep it, but ask each time: see the ETags

	if no := admit(r, s.cfg.Token); no != nil {
		s.refuse(w, r, no)
		return
	}
	if verb, ok := s.verbs[r.URL.Path]; ok {
		s.serveChange(w, r, verb)
		return
	}
	if o, ok := s.orders[r.URL.Path]; ok {
		s.serveOrder(w, r, o)
		return
	}
	handler := s.routes.find(r.URL.Path)
	if handler == nil {
		writeError(w, r, http.StatusNotFound, "there is no %q here, but: %s", r.URL.Path, s.paths())
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		writeError(w, r, http.StatusMethodNotAllowed, "%s can only be read: GET or HEAD, not %q", r.URL.Path, r.Method)
		return
	}
	handler.ServeHTTP(w, r)
}

// recoverPanic makes one broken answer of a panic, and leaves the sidecar alone.
func (s *Server) recoverPanic(w http.ResponseWriter, r *http.Request) {
	v := recover()
	switch {
	case v == nil:
		return
	case v == http.ErrAbortHandler:
		panic(v) // the standard library's word for: cut this answer off
	}
	s.log.Error("an admin request panicked", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	// Answers are put together before they are sent. Where one was under way nevertheless, this changes nothing.
	writeError(w, r, http.StatusInternalServerError, "the answer could not be made: the sidecar's log says why")
}

// metricsHandler gathers once for scrapes that come together, and leaves out what cannot be gathered instead of all the rest.
func (s *Server) metricsHandler() http.Handler {
	return promhttp.HandlerFor(s.deps.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 2,
		Timeout:             requestWithin,
		CoalesceGather:      true,
		EnableOpenMetrics:   true,
	})
}

func servePprof(w http.ResponseWriter, r *http.Request) {
	// The index is a page with styles of its own.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	switch strings.TrimPrefix(r.URL.Path, pprofPath) {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}
