package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryExampleIsExplained: each folder has a README and stands in that of the whole.
func TestEveryExampleIsExplained(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if !f.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(f.Name(), "README.md")); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(index), "]("+f.Name()+")") {
			t.Errorf("%s is not in README.md", f.Name())
		}
	}
}

// checkConfigurations checks every configuration file of the examples as an operator would, with made-up values for what comes from the environment.
func checkConfigurations(t *testing.T, program string) {
	t.Helper()
	files, err := filepath.Glob("*/ringside.yaml")
	if err != nil || !slices.Contains(files, "compose/ringside.yaml") || !slices.Contains(files, "kubernetes/ringside.yaml") || !slices.Contains(files, "systemd/ringside.yaml") {
		t.Fatalf("%q, %v", files, err)
	}
	made := []string{"HOSTNAME=app-1", "STATE_DIRECTORY=" + t.TempDir(), "RINGSIDE_TOKEN=token", "CACHE_PASSWORD=password", "GOSSIP_KEY=cmluZ3NpZGUgZXhhbXBsZSBrZXksIGNoYW5nZSBtZSE="}
	for _, database := range []string{"CATALOG", "S1", "S2"} {
		made = append(made, database+"_DSN=postgres://ringside:password@127.0.0.1/"+strings.ToLower(database))
	}
	for _, file := range files {
		said(t, run(t, ".", made, program, "check-config", file), "keyspaces:")
	}
}

// checkUnit has systemd look at the unit, where there is one; the program is where it was built.
func checkUnit(t *testing.T, program string) {
	t.Helper()
	text, err := os.ReadFile("systemd/ringside.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, promised := range []string{"DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes", "ExecReload=/bin/kill -HUP $MAINPID"} {
		if !strings.Contains(string(text), "\n"+promised+"\n") {
			t.Errorf("the unit does not say %s", promised)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("there is no systemd-analyze here: it did not look at the unit")
		return
	}
	unit := filepath.Join(t.TempDir(), "ringside.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/ringside", program)), 0o644); err != nil {
		t.Fatal(err)
	}
	if printed := strings.TrimSpace(run(t, ".", nil, "systemd-analyze", "verify", "--man=no", unit)); strings.Contains(printed, "ringside.service") {
		t.Errorf("systemd-analyze verify: %s", printed)
	}
	if !strings.Contains(run(t, ".", nil, "systemd-analyze", "--no-pager", "--help"), "--offline") {
		t.Log("this systemd-analyze (before 250) cannot judge a unit that is not loaded")
		return
	}
	// Of what it may do: 0 is nothing, 10 is everything.
	printed := run(t, ".", nil, "systemd-analyze", "security", "--offline=true", "--no-pager", unit)
	if level := regexp.MustCompile(`exposure level for ringside.service: ([0-9.]+)`).FindStringSubmatch(printed); level == nil || len(level[1]) != 3 || level[1] >= "2.0" {
		t.Errorf("systemd-analyze security: %s", printed)
	}
}
