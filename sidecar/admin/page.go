package admin

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
)

// The page is one file as it is sent: its styles and its program are put into it, and the Content-Security-Policy names their hashes, so
// that nothing else on it can run.
//
//go:embed web
var web embed.FS

// hotKeysOnPage is how many hot keys of each kind the page shows.
const hotKeysOnPage = 5

type page struct {
	template *template.Template
	style    template.CSS
	script   template.JS
	policy   string // Content-Security-Policy
	build    string // of the page as a whole: one that is open looks whether it is still the same
}

func newPage() (*page, error) {
	t, err := template.New("page").Funcs(template.FuncMap{"grouped": grouped, "percent": percent, "remaining": remaining, "readable": readable, "rate": rate}).ParseFS(web, "web/*.gohtml")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	style, err := web.ReadFile("web/page.css")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	// One after the other: the first define what page.js uses.
	var script []byte
	for _, name := range []string{"web/draw.js", "web/chart.js", "web/page.js"} {
		part, err := web.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("page: %w", err)
		}
		script = append(script, part...)
	}
	markup, err := web.ReadFile("web/ring.gohtml")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	build := sha256.Sum256(slices.Concat(style, script, markup))
	policy := []string{
		"default-src 'none'", "style-src " + hashSource(style), "script-src " + hashSource(script), "connect-src 'self'", "img-src data:",
		"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	}
	return &page{template: t, style: template.CSS(style), script: template.JS(script), policy: strings.Join(policy, "; "), build: hex.EncodeToString(build[:6])}, nil
}

// hashSource is how a Content-Security-Policy names an inline text.
func hashSource(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pageData is what the templates see.
type pageData struct {
	*view  // nil: there is no topology yet
	Name   string
	Style  template.CSS
	Script template.JS
	Build  string
}

// servePage is /ring for people. The program on it asks for the same page again and again and takes over what has changed, so everything on
// it is rendered here, and it can be read without the program as well. With ?key= it also shows where that key lives, and with ?change=&fleet=&name=&weight= what such a change would move.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	data := pageData{Name: s.deps.Name, Style: s.page.style, Script: s.page.script, Build: s.page.build}
	name := "starting.gohtml"
	if t := s.deps.Topology.Current(); t != nil {
		answer, _ := s.rings.documents(t)
		v := newView(t, s.deps.Members(), s.deps.Pools(), s.deps.Ready())
		progress := s.deps.Progress()
		v.Change = progress.Summary
		parts, err := s.watchedMoves(r.Context())
		v.Moving = newMoving(progress, parts, err)
		v.Version, v.RingTag, v.Keyspaces = s.deps.Version, answer.etag, s.deps.Keyspaces.Keyspaces()
		v.Hot = s.deps.HotKeys(hotKeysOnPage)
		query := r.URL.Query()
		if query.Has("key") {
			v.Lookup = lookUp(t, s.deps.Keyspaces, query.Get("key"))
		}
		v.Proposal = s.proposal(r.Context(), t, query)
		data.view, name = v, "ring.gohtml"
	}
	var out bytes.Buffer
	if err := s.page.template.ExecuteTemplate(&out, name, data); err != nil {
		s.log.Error("the ring page cannot be rendered", "error", err)
		writeError(w, r, http.StatusInternalServerError, "the page could not be made: the sidecar's log says why")
		return
	}
	w.Header().Set("Content-Security-Policy", s.page.policy)
	if data.view == nil {
		w.Header().Set("Retry-After", "1")
		send(w, r, http.StatusServiceUnavailable, typeHTML, out.Bytes())
		return
	}
	newDocument(typeHTML, out.Bytes(), gzip.BestSpeed).write(w, r)
}
