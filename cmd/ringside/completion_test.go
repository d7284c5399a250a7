package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// leaves are all commands that can be run.
func leaves(t *testing.T) map[string]*kong.Node {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.Name("ringside"), kong.PostBuild(addExamples))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*kong.Node{}
	for _, node := range parser.Model.Leaves(true) {
		all[pathOf(node)] = node
	}
	if len(all) < 20 {
		t.Fatalf("only %d commands", len(all))
	}
	return all
}

func TestEveryCommandHasAnExample(t *testing.T) {
	for path := range leaves(t) {
		if got := ringside(t, nil, append(strings.Fields(path), "--help")...); got.code != exitDone || !strings.Contains(got.stdout, "Example") {
			t.Errorf("%s --help: %v", path, got)
		}
	}
}

// The reference has a heading for each command, names each of its flags and, where it prints JSON, its fields.
func TestTheReferenceIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/CLI.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		sections[strings.Trim(title, "`")] = body
	}
	common := []string{"help", "admin", "token", "timeout", "wait", "wait-limit", "json"}
	for path, node := range leaves(t) {
		body, ok := sections[path]
		if !ok {
			t.Errorf("docs/CLI.md has no heading for %q", path)
			continue
		}
		delete(sections, path)
		for _, f := range node.Flags {
			if path != "loadtest" && !slices.Contains(common, f.Name) && !strings.Contains(body, "`--"+f.Name) {
				t.Errorf("docs/CLI.md: %s does not name --%s", path, f.Name)
			}
			if f.Name == "json" && !strings.Contains(body, "JSON: ") {
				t.Errorf("docs/CLI.md: %s does not say what --json prints", path)
			}
		}
	}
	for title := range sections {
		t.Errorf("docs/CLI.md has %q, which is no command", title)
	}
}

func TestCompletionKnowsEverything(t *testing.T) {
	scripts := map[string]string{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := ringside(t, nil, "completion", shell)
		if got.code != exitDone || got.stderr != "" {
			t.Fatalf("%s: %v", shell, got)
		}
		scripts[shell] = got.stdout
		file := filepath.Join(t.TempDir(), shell)
		if err := os.WriteFile(file, []byte(got.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if program, err := exec.LookPath(shell); err == nil { // the shell itself finds no fault with its syntax
			if out, err := exec.CommandContext(t.Context(), program, "-n", file).CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v\n%s", shell, err, out)
			}
		}
	}
	for path, node := range leaves(t) {
		for shell, script := range scripts {
			if !strings.Contains(script, path) {
				t.Errorf("%s does not know %s", shell, path)
			}
			for _, f := range node.Flags {
				if flag := map[bool]string{true: "-l " + f.Name, false: "--" + f.Name}[shell == "fish"]; !strings.Contains(script, flag) {
					t.Errorf("%s does not know %s of %s", shell, flag, path)
				}
			}
		}
	}
	for shell, wants := range map[string][]string{ // what follows a flag; zsh lists all words in vain that it is given without a word of help
		"bash": {"--config|-c) COMPREPLY=($(compgen -f ", "--by) COMPREPLY=($(compgen -W 'vnodes load' "},
		"zsh":  {"--config|-c) _files;", "--by) compadd -- vnodes load;", "--scenario) _files;", "--every) _message value;", "commands=('bash' 'zsh' 'fish')"},
		"fish": {"-l config -d 'Configuration file.' -s c -r -F\n", " -x -a 'vnodes load'\n", "-l scenario -d "},
	} {
		for _, want := range wants {
			if !strings.Contains(scripts[shell], want) {
				t.Errorf("%s lacks %q", shell, want)
			}
		}
	}
	if got := ringside(t, nil, "completion", "tcsh"); got.code != exitUsage || !strings.Contains(got.stderr, `must be one of "bash","zsh","fish"`) {
		t.Errorf("tcsh: %v", got)
	}
}

// The script for bash is run as bash would.
func TestBashCompletes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "completion")
	if err := os.WriteFile(file, []byte(ringside(t, nil, "completion", "bash").stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"ringside ca":                        "cache",
		"ringside cache ":                    "add drain weight remove",
		"ringside cache dr":                  "drain",
		"ringside --help cache add c4 --w":   "--weight --wait --wait-limit",
		"ringside move --help start --v":     "--vnodes",
		"ringside cache add move --fl":       "--flush",
		"ringside completion ":               "bash zsh fish",
		"ringside verify cache --sam":        "--sample",
		"ringside lookup ":                   "",
		"ringside serve --config ../../go.m": "../../go.mod",
	} {
		words := strings.Split(line, " ")
		script := `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ringside; echo "${COMPREPLY[*]}"`
		out, err := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "bash", file}, words...)...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q is completed to %q, %v; want %q", line, got, err, want)
		}
	}
}
