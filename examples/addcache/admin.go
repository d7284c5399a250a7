package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// admin asks the sidecar's HTTP interface.
type admin struct{ addr, token string }

func newAdmin() (*admin, error) {
	a := &admin{cmp.Or(os.Getenv("RINGSIDE_ADMIN"), "127.0.0.1:16101"), os.Getenv("RINGSIDE_TOKEN")}
	if a.token != "" {
		return a, nil
	}
	// Each demo keeps its token in its own folder. The youngest one counts.
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "ringside-*", "token"))
	if err != nil {
		return nil, err
	}
	var youngest os.FileInfo
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || youngest != nil && info.ModTime().Before(youngest.ModTime()) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue // of another user
		}
		youngest, a.token = info, strings.TrimSpace(string(text))
	}
	if a.token == "" {
		return nil, errors.New("no demo was found: start one (make demo), or set RINGSIDE_TOKEN to the token of the sidecar")
	}
	return a, nil
}

func (a *admin) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.addr+path, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, bytes.TrimSpace(answer))
	}
	return answer, err
}

// reads are the rows that the sidecar was asked for.
type reads struct{ hits, misses float64 }

func (r reads) since(before reads) reads {
	return reads{r.hits - before.hits, r.misses - before.misses}
}

func (r reads) ratio() float64 { return r.hits / max(1, r.hits+r.misses) }

func (a *admin) reads(ctx context.Context) (r reads, err error) {
	metrics, err := a.ask(ctx, http.MethodGet, "/metrics", nil)
	for line := range strings.Lines(string(metrics)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var into *float64
		switch name {
		case "ringside_row_hits_total":
			into = &r.hits
		case "ringside_row_misses_total":
			into = &r.misses
		default:
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return r, err
		}
	}
	return r, err
}

func (a *admin) add(ctx context.Context, name, addr string) error {
	_, err := a.ask(ctx, http.MethodPost, "/caches/add", map[string]any{"name": name, "addr": addr, "weight": 1})
	return err
}

// settled reports whether the server is active and nothing is left to do.
func (a *admin) settled(ctx context.Context, name string) (bool, error) {
	body, err := a.ask(ctx, http.MethodGet, "/changes", nil)
	if err != nil {
		return false, err
	}
	var changes struct {
		Changing bool
		Servers  []struct{ Name, State string }
	}
	if err := json.Unmarshal(body, &changes); err != nil {
		return false, err
	}
	for _, s := range changes.Servers {
		if s.Name == name && s.State == "active" {
			return !changes.Changing, nil
		}
	}
	return false, nil
}

// share is how much of the ring the server owns, of 1.
func (a *admin) share(ctx context.Context, name string) (float64, error) {
	body, err := a.ask(ctx, http.MethodGet, "/ring", nil)
	if err != nil {
		return 0, err
	}
	var ring struct {
		Caches []struct {
			Name  string
			Share float64
		}
	}
	if err := json.Unmarshal(body, &ring); err != nil {
		return 0, err
	}
	for _, c := range ring.Caches {
		if c.Name == name {
			return c.Share, nil
		}
	}
	return 0, fmt.Errorf("%s is not in the ring", name)
}
