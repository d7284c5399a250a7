package examples

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"ringside/internal/localcluster"
)

const operations = "../docs/OPERATIONS.md"

// checkMetrics looks at the metrics of real sidecars: how they are named, that all of them are explained, and that what the dashboard and the alerts ask for exists.
func checkMetrics(t *testing.T, c *localcluster.Cluster) {
	names := map[string]bool{}
	for _, s := range c.Sidecars {
		text := metrics(t, s, "text/plain")
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%v: %v", err, problems)
		}
		for _, found := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
			names[found[1]] = true
		}
	}
	if len(names) < 100 {
		t.Fatalf("only %d metrics", len(names))
	}
	checkNative(t, c.Sidecars[0])
	checkExplained(t, names)
	checkAsked(t, names)
}

// metrics asks a sidecar for its metrics in a format.
func metrics(t *testing.T, s *localcluster.Sidecar, format string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Accept", format)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", res.Status, err)
	}
	return string(body)
}

// checkNative: histograms have native buckets for whoever asks for them, and the classic ones too. The event loops count by themselves, in classic ones.
func checkNative(t *testing.T, s *localcluster.Sidecar) {
	t.Helper()
	const format = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	decoder := expfmt.NewDecoder(strings.NewReader(metrics(t, s, format)), expfmt.NewFormat(expfmt.TypeProtoDelim))
	native := 0
	for {
		var family dto.MetricFamily
		err := decoder.Decode(&family)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := family.GetName()
		if family.GetType() != dto.MetricType_HISTOGRAM || !strings.HasPrefix(name, "ringside_") {
			continue
		}
		for _, m := range family.GetMetric() {
			h := m.GetHistogram()
			if len(h.GetBucket()) == 0 {
				t.Errorf("%s%v has no classic buckets", name, m.GetLabel())
			}
			if name != "ringside_request_duration_seconds" && h.Schema == nil {
				t.Errorf("%s%v has no native buckets", name, m.GetLabel())
			}
			if h.Schema != nil && h.GetSampleCount() > 0 && len(h.GetPositiveSpan()) > 0 {
				native++
			}
		}
	}
	if native < 3 {
		t.Errorf("%d histograms have something in native buckets", native)
	}
}

// checkExplained: each metric is in the table of OPERATIONS.md, and no other.
func checkExplained(t *testing.T, names map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Metrics\n")
	table, _, _ = strings.Cut(table, "\n## ")
	explained := map[string]bool{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") && cells[0] != "| `ringside_...`" {
			for _, found := range regexp.MustCompile("`([a-z_]+)(?:\\{[^}]*\\})?`").FindAllStringSubmatch(cells[0], -1) {
				explained["ringside_"+found[1]] = true
			}
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "ringside_") && !explained[name] {
			t.Errorf("%s is not explained in %s", name, operations)
		}
	}
	for name := range explained {
		if !names[name] && name != "ringside_handover_step" { // there only while keys are handed over
			t.Errorf("%s explains %s, which no sidecar has", operations, name)
		}
	}
}

// dashboard is what is looked at of a dashboard.
type dashboard struct {
	Panels []struct {
		ID          int
		Type        string
		Title       string
		Description string
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
}

// checkAsked: what the dashboard and the alerts ask for exists, is valid, and each alert is explained.
func checkAsked(t *testing.T, names map[string]bool) {
	t.Helper()
	var board dashboard
	text, err := os.ReadFile("grafana/ringside.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	// promtool reads rules, so each query becomes one.
	rules := "groups:\n- name: dashboard\n  rules:\n"
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d (%s) has no title, no description or no query", p.ID, p.Title)
		}
		for i, target := range p.Targets {
			exist(t, "panel "+p.Title, target.Expr, names)
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+", "$instance", ".+").Replace(target.Expr)
			rules += fmt.Sprintf("  - record: panel_%d_%d\n    expr: %q\n", p.ID, i, expr)
		}
	}
	for _, v := range board.Templating.List {
		exist(t, "variable "+v.Name, fmt.Sprint(v.Query), names)
	}
	alerts, err := os.ReadFile("prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	exist(t, "an alert", string(alerts), names)
	checkRunbook(t, string(alerts))

	queries := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(queries, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	said(t, run(t, ".", nil, "promtool", "check", "rules", queries), "SUCCESS")
	said(t, run(t, ".", nil, "promtool", "check", "rules", "prometheus/alerts.yml"), "SUCCESS")
	said(t, run(t, ".", nil, "promtool", "test", "rules", "prometheus/alerts_test.yml"), "SUCCESS")
	said(t, run(t, ".", nil, "promtool", "check", "config", "prometheus/prometheus.yml"), "SUCCESS")
}

// exist fails if a text names metrics that there are not.
func exist(t *testing.T, where, text string, names map[string]bool) {
	t.Helper()
	asked := map[string]bool{}
	for _, found := range regexp.MustCompile(`\b(?:ringside|go|process)_[a-z0-9_]+`).FindAllString(text, -1) {
		asked[found] = true
	}
	if len(asked) == 0 && where != "variable datasource" {
		t.Errorf("%s asks for no metric: %s", where, text)
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if !names[name] && !names[strings.TrimSuffix(name, "_bucket")] && !names[strings.TrimSuffix(name, "_sum")] && !names[strings.TrimSuffix(name, "_count")] {
			t.Errorf("%s asks for %s, which no sidecar has", where, name)
		}
	}
}

// checkRunbook: each alert has a heading in OPERATIONS.md to which it leads, and no other alert has one.
func checkRunbook(t *testing.T, alerts string) {
	t.Helper()
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^#### (Ringside[A-Za-z]+)$`).FindAllStringSubmatch(string(text), -1) {
		explained[found[1]] = true
	}
	if len(explained) < 20 {
		t.Errorf("only %d alerts are explained", len(explained))
	}
	for _, rule := range strings.Split(alerts, "- alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		if !explained[name] {
			t.Errorf("%s does not say what to do about %s", operations, name)
		}
		delete(explained, name)
		for _, want := range []string{"runbook: docs/OPERATIONS.md#" + strings.ToLower(name) + "\n", "severity: ", "summary: "} {
			if !strings.Contains(rest, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
	}
	for name := range explained {
		t.Errorf("%s explains %s, which is no alert", operations, name)
	}
}
