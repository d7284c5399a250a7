package ringside_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machine is a made-up machine for scripts/setup: a PATH of its own and a root for the system's files. Its apt-get, brew and sudo
// write down how they were called; apt-get installs by making the programs that setup looks for.
type machine struct {
	t         *testing.T
	bin, root string
	log       string
}

func newMachine(t *testing.T, uid string) machine {
	t.Helper()
	dir := t.TempDir()
	m := machine{t: t, bin: filepath.Join(dir, "bin"), root: filepath.Join(dir, "root"), log: filepath.Join(dir, "log")}
	for _, d := range []string{m.bin, m.root} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"sh", "cat", "chmod", "cp", "env", "grep", "mkdir", "mktemp", "rm", "rmdir"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	m.program("id", "echo "+uid)
	m.write("log", m.log, "")
	return m
}

func (m machine) write(what, path, text string) {
	m.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil { // programs
		m.t.Fatalf("%s: %v", what, err)
	}
}

func (m machine) program(name, script string) {
	m.t.Helper()
	m.write(name, filepath.Join(m.bin, name), "#!/bin/sh\n"+script+"\n")
}

// withApt adds an apt-get that installs what it is told to, and notes whether services were held meanwhile.
func (m machine) withApt() {
	m.program("apt-get", `echo "apt-get $*" >>`+m.log+`
case "$*" in
*" install "*)
	"$SETUP_ROOT"/usr/sbin/policy-rc.d; echo "policy $?" >>`+m.log+`
	cat "$SETUP_ROOT"/etc/postgresql-common/createcluster.d/* >>`+m.log+`
	for name in "$@"; do
		case $name in
		redis-server) cp `+filepath.Join(m.bin, "id")+` `+filepath.Join(m.bin, "redis-server")+` ;;
		postgresql) mkdir -p "$SETUP_ROOT"/usr/lib/postgresql/15/bin
			cp `+filepath.Join(m.bin, "id")+` "$SETUP_ROOT"/usr/lib/postgresql/15/bin/initdb ;;
		nodejs) cp `+filepath.Join(m.bin, "id")+` `+filepath.Join(m.bin, "node")+` ;;
		npm) cp `+filepath.Join(m.bin, "id")+` `+filepath.Join(m.bin, "npm")+` ;;
		prometheus) cp `+filepath.Join(m.bin, "id")+` `+filepath.Join(m.bin, "promtool")+` ;;
		nutcracker) mkdir -p "$SETUP_ROOT"/usr/sbin
			cp `+filepath.Join(m.bin, "id")+` "$SETUP_ROOT"/usr/sbin/nutcracker ;;
		esac
	done ;;
esac`)
}

// setup runs the script on the machine.
func (m machine) setup(words ...string) (output string, status int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scripts/setup", words...)
	cmd.Env = []string{"PATH=" + m.bin, "SETUP_ROOT=" + m.root, "TMPDIR=" + m.t.TempDir()}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (m machine) calls() string {
	m.t.Helper()
	data, err := os.ReadFile(m.log)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(data)
}

func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestSetupInstallsOnceAndIsThenQuiet(t *testing.T) {
	m := newMachine(t, "0")
	m.withApt()
	out, status := m.setup()
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	if want := "setup: apt-get update\nsetup: apt-get install redis-server postgresql\n"; out != want {
		t.Errorf("it says\n%swant\n%s", out, want)
	}
	contains(t, m.calls(), " update", "install --no-install-recommends redis-server postgresql", "policy 101", "create_main_cluster = false")

	before := m.calls()
	if out, status := m.setup(); out != "" || status != 0 || m.calls() != before {
		t.Errorf("a second run: status %d, %q, calls\n%s", status, out, m.calls())
	}
	if out, status := m.setup("clients"); status != 0 || !strings.Contains(out, "install nodejs npm\n") {
		t.Errorf("clients: status %d, %q", status, out)
	}
	if out, status := m.setup("metrics"); status != 0 || !strings.Contains(out, "install prometheus\n") {
		t.Errorf("metrics: status %d, %q", status, out)
	}
	if out, status := m.setup("bench"); status != 0 || !strings.Contains(out, "install nutcracker\n") {
		t.Errorf("bench: status %d, %q", status, out)
	}
}

func TestSetupPutsTheSystemBack(t *testing.T) {
	files := func(m machine) (all []string) {
		err := filepath.WalkDir(filepath.Join(m.root, "etc"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all = append(all, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return all
	}
	for name, c := range map[string]struct {
		before  string // policy-rc.d, "" for none
		install string // what apt-get does
		after   string
	}{
		"there was a policy":     {"#!/bin/sh\nexit 0 # mine\n", "exit 0", "#!/bin/sh\nexit 0 # mine\n"},
		"there was none":         {"", "exit 0", ""},
		"the installation fails": {"#!/bin/sh\nexit 0 # mine\n", "echo no such package; exit 100", "#!/bin/sh\nexit 0 # mine\n"},
		"it is interrupted":      {"#!/bin/sh\nexit 0 # mine\n", "kill -TERM $PPID; exit 1", "#!/bin/sh\nexit 0 # mine\n"},
		"ours is left from a run that was killed": {
			"#!/bin/sh\n# written by scripts/setup of ringside\nexit 101\n", "exit 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "0")
			policy := filepath.Join(m.root, "usr/sbin/policy-rc.d")
			if c.before != "" {
				m.write("policy", policy, c.before)
			}
			m.program("apt-get", `case "$*" in *" install "*) `+c.install+` ;; esac`)
			if out, status := m.setup(); status == 0 { // nothing was installed, whatever apt-get says
				t.Errorf("it succeeded: %s", out)
			}
			after, err := os.ReadFile(policy)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if !bytes.Equal(after, []byte(c.after)) {
				t.Errorf("policy-rc.d is %q, want %q", after, c.after)
			}
			if left := files(m); len(left) > 0 {
				t.Errorf("left in /etc: %v", left)
			}
		})
	}
}

func TestSetupShowsWhyAnInstallationFailed(t *testing.T) {
	m := newMachine(t, "0")
	m.program("apt-get", `case "$*" in *" update"*) exit 100 ;; *) echo "E: the disk is full"; exit 100 ;; esac`)
	out, status := m.setup()
	contains(t, out, "update failed; going on", "E: the disk is full", "could not install redis-server postgresql")
	if status != 1 {
		t.Errorf("status %d", status)
	}
}

func TestSetupWithoutRoot(t *testing.T) {
	m := newMachine(t, "1000")
	m.withApt()
	out, status := m.setup("race") // there is no sudo at all
	contains(t, out, "sudo apt-get install --no-install-recommends redis-server postgresql gcc libc6-dev")
	if status != 1 || m.calls() != "" {
		t.Errorf("status %d, calls %q", status, m.calls())
	}

	m.program("sudo", `echo "sudo $*" >>`+m.log+`
[ "$1" = -n ] || exit 1
shift
exec "$@"`)
	m.program("true", "exit 0")
	m.program("cc", "exit 0")
	if out, status := m.setup("race"); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	contains(t, m.calls(), "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get", "policy 101")
}

func TestSetupWithHomebrew(t *testing.T) {
	m := newMachine(t, "501")
	m.program("brew", `echo "brew $*" >>`+m.log+`
case "$2" in
redis) cp `+filepath.Join(m.bin, "id")+` `+filepath.Join(m.bin, "redis-server")+` ;;
postgresql@17) mkdir -p "$SETUP_ROOT"/opt/homebrew/opt/postgresql@17/bin
	cp `+filepath.Join(m.bin, "id")+` "$SETUP_ROOT"/opt/homebrew/opt/postgresql@17/bin/initdb ;;
esac`)
	out, status := m.setup()
	if status != 0 || m.calls() != "brew install redis\nbrew install postgresql@17\n" {
		t.Fatalf("status %d: %s, calls %q", status, out, m.calls())
	}
}

func TestSetupElsewhereSaysWhatToInstall(t *testing.T) {
	m := newMachine(t, "0")
	out, status := m.setup("page", "clients")
	contains(t, out, "redis-server in PATH", "initdb and postgres", "node and npm", "chromium in PATH")
	if status != 1 {
		t.Errorf("status %d", status)
	}
	if out, status := m.setup("everything"); status != 1 || !strings.Contains(out, `"everything"; allowed are race, clients, bench, page and metrics`) {
		t.Errorf("an unknown word: status %d, %s", status, out)
	}
}
