package admin

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	typeJSON = "application/json"
	typeHTML = "text/html; charset=utf-8"
	typeText = "text/plain; charset=utf-8"
)

// document is an answer that is put together before any of it is sent. Its fields are shared: read only.
type document struct {
	kind string // Content-Type
	body []byte
	zip  []byte // body, compressed; empty: it was not worth it
	etag string
}

// minZip is how long, in bytes, a body must be for compression to save a packet.
const minZip = 1400

func newDocument(kind string, body []byte, level int) *document {
	sum := sha256.Sum256(body)
	// Weak, because it is the same for the compressed form.
	d := &document{kind: kind, body: body, etag: `W/"` + hex.EncodeToString(sum[:12]) + `"`}
	if len(body) >= minZip {
		var out bytes.Buffer
		z, err := gzip.NewWriterLevel(&out, level)
		if err != nil {
			panic(err) // the levels are constants of gzip's own
		}
		_, _ = z.Write(body) // a bytes.Buffer does not fail
		_ = z.Close()
		d.zip = out.Bytes()
	}
	return d
}

// write sends the document, or says that the client has it already.
func (d *document) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Add("Vary", "Accept, Accept-Encoding")
	h.Set("ETag", d.etag)
	if matches(r.Header.Get("If-None-Match"), d.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := d.body
	if d.zip != nil && preference(r.Header.Get("Accept-Encoding"), "gzip") > 0 {
		h.Set("Content-Encoding", "gzip")
		body = d.zip
	}
	send(w, r, http.StatusOK, d.kind, body)
}

func send(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that has gone misses nothing
	}
}

// writeJSON answers with a value that cannot fail to encode: numbers, strings and lists of them.
func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	newDocument(typeJSON, encodeJSON(v), gzip.BestSpeed).write(w, r)
}

func encodeJSON(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic("admin answer cannot fail to encode: " + err.Error())
	}
	return append(body, '\n')
}

// writeError answers {"error": "..."}.
func writeError(w http.ResponseWriter, r *http.Request, status int, format string, args ...any) {
	send(w, r, status, typeJSON, encodeJSON(struct {
		Error string `json:"error"`
	}{fmt.Sprintf(format, args...)}))
}

// matches compares as RFC 9110 wants it for If-None-Match: weakly.
func matches(header, etag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}

// preference is how much an Accept or Accept-Encoding header wants value: its quality, 0 when it is not named. Wildcards do not count:
// they say that anything will do, and then the simpler form does.
func preference(header, value string) float64 {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), value) {
			return quality(params)
		}
	}
	return 0
}

// quality reads the q of "q=0.5"; 1 when it is not given, 0 when it makes no sense.
func quality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(p), "="); ok && strings.EqualFold(name, "q") {
			q, _ := strconv.ParseFloat(value, 64) // 0 where it is no number
			return q
		}
	}
	return 1
}
