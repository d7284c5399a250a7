package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// adminFlags are the flags of every subcommand that asks a sidecar.
type adminFlags struct {
	Admin   string        `default:"127.0.0.1:6381" placeholder:"HOST:PORT" help:"Admin address of any sidecar, or its URL (default: 127.0.0.1:6381)."`
	Token   string        `placeholder:"TOKEN" help:"Token of the sidecar; better given as RINGSIDE_TOKEN, where others cannot see it."`
	Timeout time.Duration `default:"10s" placeholder:"10s" help:"How long to wait for the answer (default: 10s)."`
}

// adminClient asks the admin interface of one sidecar.
type adminClient struct {
	base    *url.URL
	token   string
	timeout time.Duration
	http    *http.Client
}

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 20

func (f adminFlags) client(env *environment) (*adminClient, error) {
	text := f.Admin
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, misusef("--admin is %q: it must be host:port or the URL of a sidecar's admin interface", f.Admin)
	}
	token := f.Token
	if token == "" {
		token = env.getenv("RINGSIDE_TOKEN")
	}
	return &adminClient{
		base: base, token: token, timeout: f.Timeout,
		http: &http.Client{
			// One request is sent, to an address that the user named: no proxy, no connection kept, no redirect followed with the token.
			Transport: &http.Transport{
				DisableKeepAlives: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// get returns the body of a JSON endpoint. Its errors say what to do next.
func (c *adminClient) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	body, err := c.fetch(ctx, path, query)
	if err != nil {
		return nil, err
	}
	if !json.Valid(body) {
		return nil, fmt.Errorf("%s answers %s with something that is not JSON: is it the admin address of a sidecar?", c.base.Host, path)
	}
	return body, nil
}

// decode fills in answer from a JSON endpoint.
func (c *adminClient) decode(ctx context.Context, path string, answer any) error {
	body, err := c.get(ctx, path, nil)
	if err != nil {
		return err
	}
	return decodeAnswer(path, body, answer)
}

func decodeAnswer(path string, body []byte, answer any) error {
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("the answer to %s is not understood (is the sidecar of another version?): %w", path, err)
	}
	return nil
}

func (c *adminClient) fetch(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.ask(ctx, http.MethodGet, path, query, nil)
}

// post changes something; body is JSON. Its errors say what to do next.
func (c *adminClient) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	return c.ask(ctx, http.MethodPost, path, nil, body)
}

func (c *adminClient) ask(ctx context.Context, method, path string, query url.Values, sent []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		err = c.explain(ctx, err)
		if method == http.MethodPost && ctx.Err() != nil {
			err = fmt.Errorf("%w; the change may have been made: look with ringside ring", err)
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.explain(ctx, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("%s answers %s with more than %d bytes", c.base.Host, path, maxAnswer)
	case resp.StatusCode == http.StatusOK:
		return body, nil
	}
	if method == http.MethodPost && resp.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("%s takes no changes: %s", c.base.Host, refusalReason(body))
	}
	return nil, c.refusal(path, resp.StatusCode, body)
}

// explain says what to do about a request that got no answer.
func (c *adminClient) explain(ctx context.Context, err error) error {
	host := c.base.Host
	var unwrapped *url.Error
	if errors.As(err, &unwrapped) {
		err = unwrapped.Err // the rest repeats the URL
	}
	var timeout net.Error
	var dns *net.DNSError
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return errors.New("interrupted")
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s did not answer within %v: wait longer with --timeout, or ask another sidecar with --admin", host, c.timeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no sidecar listens on %s: start one (ringside serve), or name another with --admin", host)
	case errors.As(err, &dns):
		return fmt.Errorf("the host of --admin %s is not known: %w", host, err)
	case errors.Is(err, io.EOF), strings.Contains(err.Error(), "malformed HTTP"):
		// The Redis address of a sidecar is the likely mistake. The standard library has no error value for the second.
		return fmt.Errorf("%s does not speak HTTP: name the admin address, not the Redis one, with --admin", host)
	}
	return fmt.Errorf("asking %s: %w", host, err)
}

// refusal says what to do about an answer that is an error.
func (c *adminClient) refusal(path string, status int, body []byte) error {
	reason := refusalReason(body)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		if c.token == "" {
			return fmt.Errorf("%s wants a token: set RINGSIDE_TOKEN, or --token", c.base.Host)
		}
		return fmt.Errorf("%s refuses the token: %s", c.base.Host, reason)
	case http.StatusNotFound:
		if json.Valid(body) && !strings.Contains(reason, path) { // it is about a server, a move or a table, not about the path
			return unknown(reason)
		}
		return fmt.Errorf("%s does not know %s (%s): is it the admin address of a sidecar of this version?", c.base.Host, path, reason)
	case http.StatusBadRequest, http.StatusConflict:
		return errors.New(reason)
	}
	return fmt.Errorf("%s answers %d %s: %s", c.base.Host, status, http.StatusText(status), reason)
}

// unknown says what to do about something that the sidecar does not have, in words of which reason is the sidecar's.
func unknown(reason string) error {
	switch {
	case strings.HasPrefix(reason, "there is no shard "), strings.HasPrefix(reason, "there is no cache server "):
		return fmt.Errorf("%s: ringside ring lists those that there are", reason)
	case strings.HasPrefix(reason, "there is no move "):
		return fmt.Errorf("%s: ringside move status lists the latest", reason)
	}
	return errors.New(reason)
}

// oneLine joins the lines that PostgreSQL's driver makes of several attempts to connect.
var oneLine = strings.NewReplacer("\r", "", "\n\t", " ", "\n", " ")

// refusalReason reads {"error": "..."}, or else the first line of a text.
func refusalReason(body []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Error != "" {
		return printable(oneLine.Replace(answer.Error))
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte("\n"))
	if len(line) == 0 {
		return "no reason given"
	}
	return printable(string(line[:min(len(line), 300)]))
}
