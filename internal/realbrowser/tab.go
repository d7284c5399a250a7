package realbrowser

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tab is one page of a browser, as large as a window that nobody sees.
type Tab struct {
	browser *Browser
	target  string
	session string

	mu         sync.Mutex // guards complaints
	complaints []string
}

// Look is how a page is looked at.
type Look struct {
	Width, Height int     // in CSS pixels
	Scale         float64 // pixels of the screen for each; 0: 1
	Dark          bool    // prefers-color-scheme
	Still         bool    // prefers-reduced-motion
}

// NewTab opens an empty page.
func (b *Browser) NewTab(look Look) (*Tab, error) {
	var made struct{ TargetID string }
	if err := b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &made); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	if err := b.call("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	t := &Tab{browser: b, target: made.TargetID, session: attached.SessionID}
	b.mu.Lock()
	b.tabs[t.session] = t
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		if err := t.call(domain+".enable", nil, nil); err != nil {
			return nil, err
		}
	}
	return t, t.Look(look)
}

func (t *Tab) call(method string, params, result any) error {
	return t.browser.call(t.session, method, params, result)
}

// Look changes how the page is looked at.
func (t *Tab) Look(look Look) error {
	if look.Scale == 0 {
		look.Scale = 1
	}
	if err := t.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": look.Width, "height": look.Height, "deviceScaleFactor": look.Scale, "mobile": false,
	}, nil); err != nil {
		return err
	}
	scheme, motion := "light", "no-preference"
	if look.Dark {
		scheme = "dark"
	}
	if look.Still {
		motion = "reduce"
	}
	return t.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion},
	}}, nil)
}

// Open loads a page. It returns when the page has begun, not when it is complete: see Await.
func (t *Tab) Open(url string) error {
	var opened struct{ ErrorText string }
	if err := t.call("Page.navigate", map[string]any{"url": url}, &opened); err != nil {
		return err
	}
	if opened.ErrorText != "" {
		return fmt.Errorf("open %s: %s", url, opened.ErrorText)
	}
	return nil
}

// Eval returns what a JavaScript expression gives, as JSON does; promises are waited for.
func (t *Tab) Eval(expression string) (any, error) {
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails *thrown
	}
	if err := t.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &out); err != nil {
		return nil, err
	}
	if out.ExceptionDetails != nil {
		return nil, fmt.Errorf("%s: %s", expression, out.ExceptionDetails)
	}
	return out.Result.Value, nil
}

// Await waits until an expression is true. The error says what it gave last.
func (t *Tab) Await(expression string) error {
	for deadline := time.Now().Add(Patience); ; time.Sleep(30 * time.Millisecond) {
		got, err := t.Eval(expression)
		if err == nil && got == true {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not true within %v, but %v (%v)", expression, Patience, got, err)
		}
	}
}

// Type writes into what has the focus, as a keyboard would; Press presses one key, such as Enter, Tab or Escape.
func (t *Tab) Type(text string) error {
	return t.call("Input.insertText", map[string]any{"text": text}, nil)
}

// Press presses a key and lets it go.
func (t *Tab) Press(key string) error {
	codes := map[string]int{"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	switch key {
	case "Enter":
		event["text"] = "\r"
	case " ":
		event["text"], event["code"] = " ", "Space"
	}
	if err := t.call("Input.dispatchKeyEvent", event, nil); err != nil {
		return err
	}
	event["type"] = "keyUp"
	delete(event, "text")
	return t.call("Input.dispatchKeyEvent", event, nil)
}

// Screenshot returns the page as PNG: what the window shows, or all of it.
func (t *Tab) Screenshot(whole bool) ([]byte, error) {
	var shot struct{ Data string }
	if err := t.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}, &shot); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(shot.Data)
}

// Complaints is what has gone wrong on the page so far: exceptions, console errors, and what its policy has stopped.
func (t *Tab) Complaints() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.complaints)
}

type thrown struct {
	Text      string
	Exception struct{ Description string }
}

func (x *thrown) String() string { return strings.TrimSpace(x.Text + " " + x.Exception.Description) }

// hear takes note of an event.
func (t *Tab) hear(method string, params json.RawMessage) {
	var e struct {
		Type             string
		Args             []struct{ Value, Description any }
		Entry            struct{ Source, Level, Text string }
		ExceptionDetails *thrown
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	complaint := ""
	switch {
	case method == "Runtime.exceptionThrown" && e.ExceptionDetails != nil:
		complaint = e.ExceptionDetails.String()
	case method == "Runtime.consoleAPICalled" && (e.Type == "error" || e.Type == "warning" || e.Type == "assert"):
		complaint = fmt.Sprint("console: ", e.Args)
	case method == "Log.entryAdded" && (e.Entry.Level == "error" || e.Entry.Source == "security"):
		complaint = e.Entry.Source + ": " + e.Entry.Text
	default:
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complaints = append(t.complaints, complaint)
}

// Close closes the page.
func (t *Tab) Close() error {
	return t.browser.call("", "Target.closeTarget", map[string]any{"targetId": t.target}, nil)
}
